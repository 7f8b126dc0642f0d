package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// checkStuck finds a message that waits too long.
func (c *Checker) checkStuck(m *message, l *Line) {
	if wait := c.overdue(m, l.At); wait > c.rules.Patience && !m.stuck {
		c.addFinding(Stuck, m, fmt.Sprintf("was due for %v, and had not come", round(wait)), m.origin(), l)
	}
}

// overdue returns how long a message has been due. The time before c.calmSince does not count: at that time a consumer
// started, lost its connection or ended.
func (c *Checker) overdue(m *message, now int64) time.Duration {
	if !m.waits || m.done {
		return 0
	}
	return micros(now - max(m.dueSince, c.calmSince))
}

// origin returns the line since which a message waits.
func (m *message) origin() *Line {
	if len(m.failures) > 0 {
		return m.failures[len(m.failures)-1]
	}
	return m.published
}

// checkOrder finds a message whose first delivery comes after that of a later message with the same key.
func (c *Checker) checkOrder(m *message, l *Line) {
	if m.key == nil {
		return
	}
	if later := m.key.latest; later != nil && m.number < later.number {
		if c.couldComeFirst(m, m.key.latestDelivery) {
			c.addFinding(Disorder, m, "came after message "+later.name+", which was published later with the same key",
				m.published, later.published, m.key.latestDelivery, l)
		}
		return
	}
	m.key.latest, m.key.latestDelivery = m, l
}

// checkSerial finds a message that is handled after a later message with the same key.
func (c *Checker) checkSerial(m *message, l *Line) {
	if !c.rules.Serial || m.key == nil || m.handled {
		return
	}
	m.handled = true
	if later := m.key.handled; later != nil && m.number < later.number {
		if c.couldComeFirst(m, m.key.handledDelivery) {
			c.addFinding(Disorder, m, "was handled after message "+later.name+", which was published later with the "+
				"same key", m.published, later.published, m.key.handledDelivery, l)
		}
		return
	}
	m.key.handled, m.key.handledDelivery = m, cmp.Or(m.deliveryOf(l), l)
}

// couldComeFirst reports whether the consumer that got a later message before m could have handled m first: it had
// received m, or the history has no received events.
func (c *Checker) couldComeFirst(m *message, later *Line) bool {
	return !c.receives || slices.ContainsFunc(m.received,
		func(r *Line) bool { return r.Consumer == later.Consumer && r.At <= later.At })
}

// onTheWay is how long an acknowledgement may take to reach the broker: clients group acknowledgements for 0.1 s.
// During that time another consumer may get the message, since the broker sends a whole batch if one message of it is
// requested.
const onTheWay = time.Second

// checkDouble finds a delivery after the line that settled the message, or that moved it to the retry topic.
func (c *Checker) checkDouble(m *message, settled, l *Line) {
	from := settled.At - c.rules.Window.Microseconds()
	switch {
	case m.unsure || c.hadFault(l.Consumer, from, l.At):
		return
	case settled.Kind == DeadLettered && c.anyFault(m.delivered, l):
		return
	case settled.Kind != DeadLettered && !settled.Confirmed && settled.Consumer != l.Consumer &&
		micros(l.At-settled.At) < onTheWay:
		return
	case settled.Kind != DeadLettered && !settled.Confirmed && c.hadFault(settled.Consumer, from,
		min(l.At, settled.At+c.rules.Window.Microseconds())):
		return
	}
	how := map[bool]string{true: "it was acknowledged, and the broker confirmed that",
		false: "it was acknowledged, and no connection was lost"}[settled.Confirmed]
	switch settled.Kind { //nolint:exhaustive // the other kinds do not settle
	case DeadLettered:
		how = "it became a dead letter"
	case Reconsumed:
		how = "it went to the retry topic, and no connection was lost"
	}
	c.addFinding(Duplicated, m, "was delivered after "+how, settled, l)
}

// checkDelay finds a delivery before the delay of a nack is over. It excuses the delivery if the consumer that knew the
// delay was gone by then.
func (c *Checker) checkDelay(m *message, l *Line) {
	for _, f := range m.failures {
		due := f.At + f.Delay
		if l.At >= due || f.Kind == Reconsumed || f.Copy != l.Copy ||
			c.mayForget(f, l) && !(c.rules.Durable && m.isCounted(f, l)) {
			continue
		}
		c.findEarly(m, due, f, l)
		return
	}
}

func (c *Checker) findEarly(m *message, due int64, failure, l *Line) {
	c.addFinding(Early, m, fmt.Sprintf("came %v before it was due", round(micros(due-l.At))), failure, l)
}

// checkCount compares a delivery's count with the count of the previous delivery, and with the failure in between.
func (c *Checker) checkCount(m *message, l *Line) {
	if limit := c.rules.MaxDeliveries; limit > 0 && l.Count >= limit {
		c.addFinding(Miscounted, m, fmt.Sprintf("came with redelivery count %d, want at most %d, for %d deliveries",
			l.Count, limit-1, limit), l)
		return
	}
	if l.Count < 0 || m.unsure || len(m.deliveries) == 0 { // a client forgets the count of a settled message
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
	case failure != nil && failure.Kind == Nacked && !c.mayForget(failure, l):
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
		c.addFinding(Miscounted, m,
			fmt.Sprintf("came with redelivery count %d, want at least %d", l.Count, low), lines...)
	case l.Count > low && failure != nil && !c.anyFault(before, l):
		c.addFinding(Miscounted, m, fmt.Sprintf("came with redelivery count %d, want %d", l.Count, low), lines...)
	}
}
