package history

import "slices"

// A message that went through the retry topic has several copies at the broker: the original, and one for each retry. A
// retry has two copies if the connection was lost while it was published. Each copy has its own delay and its own
// count.

// isOfSameCopy reports whether two lines have the same consumer and the same copy.
func (l *Line) isOfSameCopy(other *Line) bool {
	return l.Consumer == other.Consumer && l.Copy == other.Copy
}

// reconsume notes the retry that a reconsumed line announces.
func (m *message) reconsume(l *Line) {
	delivery := m.deliveryOf(l)
	if delivery == nil || delivery.Retry < 0 {
		m.unsure = true
		return
	}
	if m.retries == nil {
		m.retries, m.copies = map[int][]*Line{}, map[int][]string{}
	}
	m.retries[delivery.Retry+1] = append(m.retries[delivery.Retry+1], l)
	m.moved = append(m.moved, l)
	l.Retry = delivery.Retry
}

// checkCopy finds three faults: a copy that comes again although it went to the retry topic, a retry that is early, and
// a second copy of a retry. A retry carries its own delay, so nothing excuses an early one. checkCopy reports whether
// the delivery is a double, excused or not.
func (c *Checker) checkCopy(m *message, l *Line) (double bool) {
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
	if announced, due := m.due(l.Retry); announced != nil && l.At < due {
		c.findEarly(m, due, announced, l)
	}
	announced := m.retries[l.Retry]
	if len(announced) == 0 || len(m.copies[l.Retry]) <= len(announced) {
		return false
	}
	last := announced[len(announced)-1]
	if !m.unsure && !c.anyFault(last, last) {
		c.addFinding(Duplicated, m, "was published twice to the retry topic, and no connection was lost", last, l)
	}
	return true
}

// due returns the line that announced a retry, and the earliest time at which the retry may come. A retry's delay
// begins with its publish time, which the broker keeps in milliseconds.
func (m *message) due(retry int) (announced *Line, at int64) {
	for _, l := range m.retries[retry] {
		if due := l.At - l.At%1000 + l.Delay; announced == nil || due < at {
			announced, at = l, due
		}
	}
	return announced, at
}
