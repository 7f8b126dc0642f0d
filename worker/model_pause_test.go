package worker_test

import (
	"slices"
	"time"

	"github.com/pulsar-redelivery/redelivery/worker"
)

// noteOutage notes when outages begin and end.
func (m *watched) noteOutage(p worker.Paused) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case p.Why != worker.PauseOutage:
	case p.Paused:
		m.outages = append(m.outages, span{m.now(), -1})
	default:
		m.outages[len(m.outages)-1].to = m.now()
	}
}

// mayBeKept reports whether an attempt failed in an outage, or at the moment when one began or ended. Then the Worker
// may keep the message, and the failure may not count. Observers do not see an outage that a success ends at once, so
// each success at the moment of the failure may have ended one.
func (m *watched) mayBeKept(a attempt) bool {
	switch a.does.returns {
	case succeeds, permanent, snoozes:
		return false
	default:
		return slices.ContainsFunc(m.outages, func(o span) bool { return a.ended >= o.from && (a.ended <= o.to || o.to < 0) }) ||
			m.outage.window > 0 && slices.ContainsFunc(m.seen, func(b attempt) bool { return b.ended == a.ended && b.does.returns == succeeds })
	}
}

// mayComeFromSlot reports whether a slot may have kept an attempt's message since the previous attempt. Such a message
// is handled even in a pause.
func (m *watched) mayComeFromSlot(a attempt) bool {
	last := slices.IndexFunc(m.seen, func(b attempt) bool { return b.call == a.call && b.msg == a.msg })
	for _, b := range slices.Backward(m.seen[:last]) {
		if b.msg == a.msg {
			return b.halved || m.mayBeKept(b) || b.local != no || b.whole && m.hadTimedOut(b, b.ended) // a redelivered batch is halved
		}
	}
	return false
}

// quietTime returns how long nothing may happen while messages are left.
func (m *watched) quietTime() (long time.Duration) {
	long = 30 * time.Second
	if m.outage.window > 0 && m.outage.pause == time.Minute {
		long = 90 * time.Second
	}
	if m.limited || m.localRetries > 0 {
		long += 10 * time.Second
	}
	return long
}
