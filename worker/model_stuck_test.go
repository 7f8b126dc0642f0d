package worker_test

import (
	"fmt"

	"github.com/pulsar-redelivery/redelivery/worker"
)

// checkPlaces checks how many handlers run when one more is called. A stuck handler loses its place. The second half of
// a batch keeps the place of the first. The caller holds mu.
func (m *watched) checkPlaces() {
	if stuck := m.stuckCalls(false); m.active > 2*m.concurrency || m.batch == (worker.Batch{}) && m.active-stuck > m.concurrency {
		m.wrong = append(m.wrong, fmt.Sprintf("%d handlers at %v, %d of them stuck", m.active, m.now(), stuck))
	}
}

// stuckCalls returns how many handlers have been running for longer than the limit. If ever is set, it also counts
// handlers that have returned and took longer. The caller holds mu.
func (m *watched) stuckCalls(ever bool) int {
	calls := map[int]bool{}
	for _, a := range m.attempts {
		ended := a.ended
		if ended < 0 {
			ended = m.now()
		}
		if (ever || a.ended < 0) && ended-a.began >= m.stuckLimit && m.timeout+m.ackTimeout > 0 {
			calls[a.call] = true
		}
	}
	return len(calls)
}

// checkStuck checks that so many handlers were stuck that Run had to return ErrStuck.
func (m *watched) checkStuck() {
	m.mu.Lock()
	stuck := m.stuckCalls(true)
	m.mu.Unlock()
	if stuck <= m.concurrency {
		m.errorf("Run returned ErrStuck, with %d handlers stuck", stuck)
	}
}
