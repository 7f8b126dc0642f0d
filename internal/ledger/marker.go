package ledger

import "time"

// marker marks, for the streams that wait for it, that SendDelay is over.
type marker struct {
	streams []*stream
	timer   *time.Timer // nil before the first
}

func (m *marker) stop() {
	if m.timer != nil {
		m.timer.Stop()
	}
}

// unsent notes that something of a stream was given to the inner consumer, which sends it within SendDelay. The caller
// holds mu.
func (l *Ledger) unsent(s *stream) {
	if s.marking || s.gone {
		return
	}
	s.marking = true
	m := &l.marker
	m.streams = append(m.streams, s)
	if len(m.streams) > 1 {
		return
	}
	if m.timer == nil {
		m.timer = time.AfterFunc(l.o.SendDelay, l.mark)
	} else {
		m.timer.Reset(l.o.SendDelay)
	}
}

// mark notes that SendDelay is over.
func (l *Ledger) mark() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	m := &l.marker
	rest := m.streams[:0]
	for _, s := range m.streams {
		if s.marking = !s.gone && l.table.mark(s); s.marking {
			rest = append(rest, s)
		}
	}
	clear(m.streams[len(rest):])
	if m.streams = rest; len(rest) > 0 {
		m.timer.Reset(l.o.SendDelay)
	}
}
