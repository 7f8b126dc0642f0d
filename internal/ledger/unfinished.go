package ledger

// unfinished returns how many settled messages the broker has no acknowledgement of, since their batches are not settled whole, and how many
// messages of such batches are about to arrive. The caller holds mu.
func (l *Ledger) unfinished() (settled, arriving int) {
	t := &l.table
	if l.o.IndexAcks || t.states[acked] == 0 {
		return 0, 0
	}
	count := func(e *entry) {
		if e.isBatch() && (e.batch.total == 0 || e.batch.acked < e.batch.total) {
			settled += int(e.batch.acked)
		}
	}
	for _, s := range t.streams {
		if s.inactive {
			continue
		}
		for _, e := range t.unsettled(s) {
			count(e)
		}
		for _, p := range s.past.parts {
			count(&t.entries.At(p.slot).Value)
		}
		if s.current == none {
			continue
		}
		e := &t.entries.At(s.current).Value
		if e.isSettled() && e.batch.seen < e.size() { // it is in neither
			count(e)
		}
		if e.batch.acked > 0 {
			arriving += int(e.size() - e.batch.seen)
		}
	}
	return settled, arriving
}

// IsBegun reports whether other messages of a message's batch are settled, or with the application, so that the broker sends them again unless
// this one is settled too.
func (l *Ledger) IsBegun(d Delivery) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, r := l.table.at(d.Ref)
	if r == nil || !e.isBatch() || l.o.IndexAcks {
		return false
	}
	return e.batch.acked > 0 || l.hasSiblingsAtWork(e, r)
}
