package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// checkStuck finds a message that waits too long.
func (c *Checker) checkStuck(m *message, l *Line) {
	if wait := c.wait(m, l.At); wait > c.rules.Patience && !m.stuck {
		c.find(Stuck, m, fmt.Sprintf("was due for %v, and had not come", round(wait)), m.origin(), l)
	}
}

// wait returns how long a message has been due. The time before c.wake does not count: a consumer started, lost its
// connection or ended then.
func (c *Checker) wait(m *message, now int64) time.Duration {
	if !m.waits || m.done {
		return 0
	}
	return micros(now - max(m.dueSince, c.wake))
}

// origin returns the line since which a message waits.
func (m *message) origin() *Line {
	if len(m.failures) > 0 {
		return m.failures[len(m.failures)-1]
	}
	return m.published
}

// checkOrder finds a first delivery after that of a later message of the key.
func (c *Checker) checkOrder(m *message, l *Line) {
	if m.key == nil {
		return
	}
	if later := m.key.latest; later != nil && m.number < later.number {
		if c.mayPass(m, m.key.first) {
			c.find(Disorder, m, "came after message "+later.name+", which was published later with the same key",
				m.published,
				later.published, m.key.first, l)
		}
		return
	}
	m.key.latest, m.key.first = m, l
}

// checkSerial finds a message that is handled after a later message of its key.
func (c *Checker) checkSerial(m *message, l *Line) {
	if !c.rules.Serial || m.key == nil || m.handled {
		return
	}
	m.handled = true
	if later := m.key.handled; later != nil && m.number < later.number {
		if c.mayPass(m, m.key.handledBy) {
			c.find(Disorder, m, "was handled after message "+later.name+", which was published later with the same key",
				m.published,
				later.published, m.key.handledBy, l)
		}
		return
	}
	m.key.handled, m.key.handledBy = m, cmp.Or(m.deliveryOf(l), l)
}

// mayPass reports whether the consumer that got a later message before m could have handled m first: it had received m,
// or the history has no received events.
func (c *Checker) mayPass(m *message, later *Line) bool {
	return !c.receives || slices.ContainsFunc(m.received,
		func(r *Line) bool { return r.Consumer == later.Consumer && r.At <= later.At })
}

// onTheWay is how long an acknowledgement may take to reach the broker: clients group acknowledgements for 0.1 s.
// During that time the broker may send the message to another consumer, together with a requested message of the same
// batch.
const onTheWay = time.Second

// checkDouble finds a delivery after the line that settled the message, or that moved it to the retry topic.
func (c *Checker) checkDouble(m *message, s, l *Line) {
	from := s.At - c.rules.Window.Microseconds()
	switch {
	case m.unsure || c.fault(l.Consumer, from, l.At):
		return
	case s.Kind == DeadLettered && c.anyFault(m.delivered, l):
		return
	case s.Kind != DeadLettered && !s.Confirmed && s.Consumer != l.Consumer && micros(l.At-s.At) < onTheWay:
		return
	case s.Kind != DeadLettered && !s.Confirmed && c.fault(s.Consumer, from,
		min(l.At, s.At+c.rules.Window.Microseconds())):
		return
	}
	how := map[bool]string{true: "it was acknowledged, and the broker confirmed that",
		false: "it was acknowledged, and no connection was lost"}[s.Confirmed]
	switch s.Kind { //nolint:exhaustive // the other kinds do not settle
	case DeadLettered:
		how = "it was a dead letter"
	case Reconsumed:
		how = "it went to the retry topic, and no connection was lost"
	}
	c.find(Duplicated, m, "was delivered after "+how, s, l)
}

// checkDelay finds a delivery before the delay of a nack is over. It excuses the delivery if the consumer that knew the
// delay was gone by then.
func (c *Checker) checkDelay(m *message, l *Line) {
	for _, f := range m.failures {
		due := f.At + f.Delay
		if l.At >= due || f.Kind == Reconsumed || f.Copy != l.Copy ||
			c.forgets(f, l) && !(c.rules.Durable && m.isCounted(f, l)) {
			continue
		}
		c.findEarly(m, due, f, l)
		return
	}
}

func (c *Checker) findEarly(m *message, due int64, failure, l *Line) {
	c.find(Early, m, fmt.Sprintf("came %v before it was due", round(micros(due-l.At))), failure, l)
}

// checkCount compares a delivery's count with the count of the previous delivery, and with the failure in between.
func (c *Checker) checkCount(m *message, l *Line) {
	if limit := c.rules.MaxDeliveries; limit > 0 && l.Count >= limit {
		c.find(Miscounted, m, fmt.Sprintf("came with redelivery count %d, want at most %d, for %d deliveries", l.Count,
			limit-1, limit), l)
		return
	}
	if l.Count < 0 || m.unsure || len(m.counts) == 0 { // a client forgets the count of a settled message
		return
	}
	before := m.delivered
	if before == nil || before.Count < 0 || before.Copy != l.Copy || !c.rules.Durable && c.mayRestart(before, l) {
		return
	}
	low, failure := before.Count, (*Line)(nil)
	for _, f := range m.failures {
		if f.isOfSameCopy(before) {
			failure = f
		}
	}
	switch {
	case failure != nil && failure.Kind == Reconsumed: // the retry is another message for the broker
		return
	case failure != nil && failure.Kind == Nacked && !c.forgets(failure, l):
		low++
	case failure != nil && failure.Kind == Nacked && l.Count <= before.Count:
		c.summary.Forgotten++
	}
	lines := []*Line{before, l}
	if failure != nil {
		lines = []*Line{before, failure, l}
	}
	switch {
	case l.Count < low:
		c.find(Miscounted, m, fmt.Sprintf("came with redelivery count %d, want at least %d", l.Count, low), lines...)
	case l.Count > low && failure != nil && !c.anyFault(before, l):
		c.find(Miscounted, m, fmt.Sprintf("came with redelivery count %d, want %d", l.Count, low), lines...)
	}
}
