package worker_test

import (
	"slices"
	"time"

	"github.com/pulsar-redelivery/redelivery/worker"
)

// pauses notes when outages begin and end.
func (m *watched) pauses(p worker.Paused) {
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

// mayBeKept reports whether an attempt failed in an outage, or when one began or ended. Then the message may be kept,
// and perhaps the failure does not count. Observers do not see an outage that a success ends at once.
func (m *watched) mayBeKept(a attempt) bool {
	switch a.does.returns {
	case succeeds, permanent, snoozes:
		return false
	default:
		return slices.ContainsFunc(m.outages, func(o span) bool { return a.ended >= o.from && (a.ended <= o.to || o.to < 0) }) ||
			m.outage.window > 0 && slices.ContainsFunc(m.seen, func(b attempt) bool { return b.ended == a.ended && b.does.returns == succeeds })
	}
}

// isRest reports whether a slot may have kept the message of an attempt since an earlier one. Such a message is handled
// even in a pause.
func (m *watched) isRest(a attempt) bool {
	last := slices.IndexFunc(m.seen, func(b attempt) bool { return b.call == a.call && b.msg == a.msg })
	for _, b := range slices.Backward(m.seen[:last]) {
		if b.msg == a.msg {
			return b.halved || m.mayBeKept(b) || b.local != no || b.whole && m.isOvertaken(b, b.ended) // a redelivered batch is halved
		}
	}
	return false
}

// long returns for how long nothing may happen while messages are left.
func (m *watched) long() (long time.Duration) {
	long = 30 * time.Second
	if m.outage.window > 0 && m.outage.pause == time.Minute {
		long = 90 * time.Second
	}
	if m.limited || m.localRetries > 0 {
		long += 10 * time.Second
	}
	return long
}
