package ledger

// isNoted reports whether upstream only notes that a message is acknowledged, until the last one of its batch is. Then it is settled before upstream
// is told, with one lock in place of two. The caller holds mu.
func (l *Ledger) isNoted(e *entry, r *record, s *Settling) bool {
	return l.o.NotesAcks && e.isBatch() && e.batch.acked+1 < e.batch.total && r.state == inFlight && !r.flags.has(busy|doubtful|timed) &&
		!s.Leaves && !s.Undecided
}

// notNoted takes back that a message is settled of which upstream could not be told, since it is closed. The caller holds mu.
func (l *Ledger) notNoted(s *Settling) {
	t, slot := &l.table, s.Ref.slot()
	e, r := l.messageOf(s)
	if r == nil || r.state != acked {
		return
	}
	if e.isSettled() {
		s.stream.past.notPart(slot)
		t.link(s.stream, slot, e)
	}
	e.flags |= ackWhole
	e.batch.acked--
	s.stream.unsettled++
	if t.move(r, inFlight); s.stream.gone { // nobody is left to settle it with
		t.forget(s.Ref, e, r)
	}
}

// messageOf returns the message of a settling, or nil if it was forgotten meanwhile, so that its place may be another's. The caller holds mu.
func (l *Ledger) messageOf(s *Settling) (*entry, *record) {
	item := l.table.entries.At(s.Ref.slot())
	if item == nil || item.Key != s.entry || item.Value.stream() != s.stream {
		return nil, nil
	}
	return &item.Value, item.Value.seen(s.Ref.index())
}
