package ledger

// unfinished returns how many settled messages the broker has no acknowledgement of, since their batches are not settled whole, and how many
// messages of such batches are about to arrive. The caller holds mu.
func (l *Ledger) unfinished() (settled, arriving int) {
	t := &l.table
	if l.indexAcks == KeptIndexAcks || t.states[acked] == 0 {
		return 0, 0
	}
	for slot, e := range t.all() {
		b := e.batch
		if !e.isBatch() || b.stream.inactive || b.stream.gone {
			continue
		}
		if b.total == 0 || b.acked < b.total {
			settled += int(b.acked)
		}
		if b.stream.current == slot && b.acked > 0 {
			arriving += int(e.size() - b.seen)
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
	if r == nil || r.id() != d.ID || !e.isBatch() || l.indexAcks == KeptIndexAcks { // or d is of a message that is settled, and names none
		return false
	}
	return e.batch.acked > 0 || l.hasSiblingsAtWork(e, r)
}
