package partition

import "time"

// StartTimeout starts the ack timeout of a hand-over, if the application still has the message.
func (g *Group) StartTimeout(now time.Duration, id ID, hand uint64, timeout time.Duration) {
	m, _ := g.find(id)
	if m != nil && m.isWith(hand) {
		m.timeout = max(1, timeout)
		g.clock.Set(&m.timer, add(now, timeout))
	}
}

// Touch restarts the ack timeout of a message. It reports whether the application has the message.
func (g *Group) Touch(now time.Duration, id ID, hand uint64) (bool, error) {
	m, err := g.find(id)
	if m == nil || !m.isWith(hand) {
		return false, err
	}
	if m.timeout > 0 {
		g.clock.Set(&m.timer, add(now, m.timeout))
	}
	return true, nil
}

// ackTimeoutOver takes a message back from the application when its ack timeout is over. For a message in a transaction
// the timer has another meaning: undecidedTime is over.
func (g *Group) ackTimeoutOver(now time.Duration, m *message) {
	if m.undecided {
		g.forget(now, m)
		return
	}
	d := g.delivery(m)
	if g.o.isLast(m.count) && m.body != nil && !m.isStale() {
		g.out.DeadLetters = append(g.out.DeadLetters, d)
		return
	}
	g.out.TimedOut = append(g.out.TimedOut, d)
	g.countFailure(now, m)
	if g.o.Drops {
		g.drop(m)
	}
	m.cause = TimedOut
	g.waitUntil(now, m, now)
}
