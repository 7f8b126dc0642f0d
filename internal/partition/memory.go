package partition

// keep keeps the body of a copy for a hand-over from memory, if there is room. The payloads of a batch are slices of
// one buffer. The buffer stays in memory as long as one of the payloads does, and counts once.
func (g *Group) keep(m *message, c *Copy) {
	if c.Body == nil {
		return
	}
	if m.body != nil {
		if !c.Unannounced { // else the body may be encrypted
			m.body = c.Body // so that a batch keeps only its newest buffer in memory
		}
		return
	}
	e, needs := m.entry, c.Size
	if e.buffer == 0 {
		needs += c.Buffer
	}
	if g.memory+needs > g.o.MemoryLimit {
		return
	}
	if e.buffer == 0 {
		e.buffer = c.Buffer
	}
	e.kept++
	m.body, m.size = c.Body, c.Size
	g.memory += needs
}

// drop releases the body of a message.
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

// Hold keeps the body of a message that the application is going to have for long, and reports whether the body fits
// the limit. To make room, it drops bodies of waiting messages: the broker can send those again.
func (g *Group) Hold(id ID, hand uint64, c *Copy) (fits bool) {
	m, _ := g.find(id)
	if m == nil || !m.isWith(hand) || m.body != nil {
		return true
	}
	g.keep(m, c)
	if m.body == nil && !g.o.NonDurable {
		g.makeRoom(c.Size + c.Buffer)
		g.keep(m, c)
	}
	return m.body != nil
}

// makeRoom drops bodies of waiting messages until needs bytes and an eighth of the limit are free. The eighth makes
// calls rare. If needs is more than seven eighths of the limit, makeRoom drops nothing. Messages whose last hand-over
// does not count, such as snoozed ones, keep their bodies.
func (g *Group) makeRoom(needs int64) {
	if needs > g.o.MemoryLimit*7/8 {
		return
	}
	for _, p := range g.partitions {
		if p.in[Waiting] == 0 {
			continue
		}
		for m := range p.messages {
			if g.memory+needs <= g.o.MemoryLimit*7/8 {
				return
			}
			if m.state == Waiting && m.busy == 0 && !m.uncounted {
				g.drop(m)
			}
		}
	}
}
