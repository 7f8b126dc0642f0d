package ledger

// DueNow ends the delays of all messages that wait here for redelivery, and returns how many there are. It changes no count. Messages that are
// about to be published elsewhere keep waiting for that.
func (l *Ledger) DueNow() int {
	l.mu.Lock()
	var refs []Ref // first, since to ask for a message of a batch changes what the table has
	for slot, e := range l.table.all() {
		for i := range e.size() {
			if waitsForDelay(e.seen(i)) {
				refs = append(refs, refOf(slot, i))
			}
		}
	}
	var asks []ask
	for _, ref := range refs {
		e, r := l.table.at(ref)
		if !waitsForDelay(r) {
			continue
		}
		if x := l.table.timing(ref, e); x != nil {
			x.due = min(x.due, l.Now())
		}
		l.nacks.Untrack(uint64(ref))
		asks = append(asks, l.over(ref, e, r))
	}
	l.unlockAndNotify(asks...)
	return len(refs)
}

func waitsForDelay(r *record) bool {
	return r != nil && r.state == waiting && !r.flags.has(leaving) && !r.flags.has(busy)
}
