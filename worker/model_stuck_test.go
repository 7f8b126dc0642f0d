package worker_test

import (
	"fmt"

	"github.com/pulsar-redelivery/redelivery/worker"
)

// checkPlaces checks how many handlers are at work when one more is called. Stuck handlers lose their places; the rest
// of a halved batch keeps its place. The caller holds mu.
func (m *watched) checkPlaces() {
	if stuck := m.stuckCalls(false); m.active > 2*m.concurrency || m.batch == (worker.Batch{}) && m.active-stuck > m.concurrency {
		m.wrong = append(m.wrong, fmt.Sprintf("%d handlers at %v, %d of them stuck", m.active, m.now(), stuck))
	}
}

// stuckCalls returns how many handlers are at work for longer than the limit. If ever is set, handlers that have
// returned count, too. The caller holds mu.
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

// checkStuck checks that Run ended for good reason.
func (m *watched) checkStuck() {
	m.mu.Lock()
	stuck := m.stuckCalls(true)
	m.mu.Unlock()
	if stuck <= m.concurrency {
		m.errorf("Run returned ErrStuck, with %d handlers stuck", stuck)
	}
}
