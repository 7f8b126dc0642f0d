package partition

// keep keeps the body of a copy for a hand-over from memory, if there is room. The payloads of a batch are
// slices of one buffer, which is there as long as one of them is, and counts once.
func (g *Group) keep(m *message, c Copy) {
	if m.body != nil || c.Body == nil {
		return
	}
	e, needs := m.entry, c.Size
	if e.kept == 0 {
		needs += c.Buffer
	}
	if g.memory+needs > g.o.MemoryLimit {
		return
	}
	if e.kept == 0 {
		e.buffer = c.Buffer
	}
	e.kept++
	m.body, m.size = c.Body, c.Size
	g.memory += needs
}

// drop lets go of the body of a message.
func (g *Group) drop(m *message) {
	if m.body == nil {
		return
	}
	e := m.entry
	e.kept--
	g.memory -= m.size
	if e.kept == 0 {
		g.memory -= e.buffer
		e.buffer = 0
	}
	m.body, m.size = nil, 0
}
