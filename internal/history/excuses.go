package history

import (
	"cmp"
	"slices"
)

// mayForget reports whether a failure may have no effect on the later delivery l, because the consumer that failed on
// the message ended or lost its connection in between. After a lost connection the consumer itself still knows its
// failure.
func (c *Checker) mayForget(failure, l *Line) bool {
	return slices.ContainsFunc(c.ends(failure.Consumer, failure.At, l.At), func(end *Line) bool {
		return end.Kind != Disconnected || failure.Consumer != l.Consumer
	})
}

// isCounted reports whether a delivery's count includes a failure.
func (m *message) isCounted(failure, l *Line) bool {
	before := m.deliveryOf(failure)
	return before != nil && before.Count >= 0 && l.Count > before.Count
}

// deliveryOf returns the delivery that a failure ended.
func (m *message) deliveryOf(failure *Line) *Line {
	if i := slices.IndexFunc(m.deliveries, failure.isOfSameCopy); i >= 0 {
		return m.deliveries[i]
	}
	return nil
}

// mayRestart reports whether a count that does not outlive its consumer may begin again: another consumer has the
// message, or may have had it.
func (c *Checker) mayRestart(before, l *Line) bool {
	if before.Consumer != l.Consumer {
		return true
	}
	return slices.ContainsFunc(c.ends(l.Consumer, before.At, l.At),
		func(end *Line) bool { return end.Kind != Disconnected || len(c.running) > 1 })
}

// mayBeSettled reports whether a message need not come any more: a killed process may have acknowledged it, or it may
// never have been published.
func (c *Checker) mayBeSettled(m *message) bool {
	switch {
	case m.delivered == nil:
		return m.unsure
	case m.acking == nil:
		return false
	default:
		return m.acking.At >= m.delivered.At || c.hadFault(m.acking.Consumer, m.acking.At,
			m.acking.At+c.rules.Window.Microseconds())
	}
}

// hadFault reports whether a consumer lost its connection or was killed between two times.
func (c *Checker) hadFault(consumer string, from, until int64) bool {
	return slices.ContainsFunc(c.ends(consumer, from, until), func(l *Line) bool { return l.Kind != Closed })
}

// wasGone reports whether a consumer lost its connection, was killed or was closed between two times.
func (c *Checker) wasGone(consumer string, from, until int64) bool {
	return len(c.ends(consumer, from, until)) > 0
}

// ends returns the lines between two times at which a consumer, or every consumer, lost its connection or ended.
func (c *Checker) ends(consumer string, from, until int64) (found []*Line) {
	for _, lines := range [][]*Line{c.faults[consumer], c.faults[""]} {
		i, _ := slices.BinarySearchFunc(lines, from, func(l *Line, at int64) int { return cmp.Compare(l.At, at) })
		for ; i < len(lines) && lines[i].At <= until; i++ {
			found = append(found, lines[i])
		}
	}
	return found
}

// anyFault reports whether any consumer was gone between two lines, or within a window before or after them.
func (c *Checker) anyFault(from, until *Line) bool {
	begin := until.At
	if from != nil {
		begin = from.At
	}
	for consumer := range c.faults {
		if window := c.rules.Window.Microseconds(); c.wasGone(consumer, begin-window, until.At+window) {
			return true
		}
	}
	return false
}
