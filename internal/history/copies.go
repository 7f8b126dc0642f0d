package history

import "slices"

// A message that went through the retry topic has several copies at the broker: the original, and one for each retry. A
// retry has two copies if the connection was lost while it was published. Each copy has its own delay and its own
// count.

// isBeside reports whether two lines are about the same consumer and copy.
func (l *Line) isBeside(other *Line) bool {
	return l.Consumer == other.Consumer && l.Copy == other.Copy
}

// reconsume notes the retry that a reconsumed line asks for.
func (m *message) reconsume(l *Line) {
	before := m.deliveryOf(l)
	if before == nil || before.Retry < 0 {
		m.unsure = true
		return
	}
	if m.retries == nil {
		m.retries, m.copies = map[int][]*Line{}, map[int][]string{}
	}
	m.retries[before.Retry+1] = append(m.retries[before.Retry+1], l)
	m.moved = append(m.moved, l)
	l.Retry = before.Retry
}

// checkCopy finds a copy that comes again after it went on to the retry topic, a retry that is early, and a second copy
// of a retry. A retry carries its own delay, so nothing excuses an early one. checkCopy reports whether the delivery is
// a double, excused or not.
func (c *Checker) checkCopy(m *message, l *Line) bool {
	if l.Retry < 0 || m.retries == nil {
		return false
	}
	if i := slices.IndexFunc(m.moved, func(d *Line) bool { return d.Retry == l.Retry && d.Copy == l.Copy }); i >= 0 {
		c.checkDouble(m, m.moved[i], l)
		m.moved = slices.Delete(m.moved, i, i+1)
		return true
	}
	if l.Retry == 0 || slices.Contains(m.copies[l.Retry], l.Copy) {
		return false
	}
	m.copies[l.Retry] = append(m.copies[l.Retry], l.Copy)
	if asked, due := m.due(l.Retry); asked != nil && l.At < due {
		c.findEarly(m, due, asked, l)
	}
	asked := m.retries[l.Retry]
	if len(asked) == 0 || len(m.copies[l.Retry]) <= len(asked) {
		return false
	}
	last := asked[len(asked)-1]
	if !m.unsure && !c.anyFault(last, last) {
		c.find(Duplicated, m, "was published twice to the retry topic, and no connection was lost", last, l)
	}
	return true
}

// due returns the line that asked for a retry, and the earliest time at which the retry may come. A retry's delay
// begins with its publish time, which the broker keeps in milliseconds.
func (m *message) due(retry int) (asked *Line, at int64) {
	for _, l := range m.retries[retry] {
		if due := l.At - l.At%1000 + l.Delay; asked == nil || due < at {
			asked, at = l, due
		}
	}
	return asked, at
}
