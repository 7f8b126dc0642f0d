package ledger

import "time"

const (
	readyShared    = 30 * time.Second // for which a message waits for an application that receives nothing, before another gets it
	readyKeyShared = 5 * time.Second  // likewise where a key does not move before; and since the application failed on it first
)

func (l *Ledger) readyPatience() time.Duration {
	if l.o.KeyOrder {
		return readyKeyShared
	}
	return readyShared
}

// isBetterElsewhere reports whether a message that is due and here had better be the next consumer's: this one seems to be what fails, or
// another is to have a say before the message is given up, or a key is to be able to move. The caller holds mu.
func (l *Ledger) isBetterElsewhere(ref Ref, r *record) bool {
	if l.o.KeyOrder {
		if first, ok := l.table.failed[ref]; ok && l.Now()-first >= readyKeyShared {
			return true
		}
	}
	return l.outcomes.fails() || l.IsLast(r.count+1)
}

// mayGiveBack reports whether a message that is kept may be another consumer's. A batch comes whole, to somebody who does not know what
// was settled of it: the broker has to know, or nothing of it may be settled or with the application. The caller holds mu.
func (l *Ledger) mayGiveBack(ref Ref, e *entry, r *record) bool {
	switch b := e.batch; {
	case !l.o.Others || r.flags.has(uncounted) || r.flags.has(leaving):
		return false
	case !e.isBatch():
		return true
	case b.stream.current == ref.slot() && b.seen < e.size(): // more of it is arriving
		return false
	case l.indexAcks == KeptIndexAcks && b.acked > 0:
		return b.seen-b.acked == 1 && b.stream.isSure(b.settled)
	}
	return e.batch.acked == 0 && !l.hasSiblingsAtWork(e, r)
}

// hasSiblingsAtWork reports whether another message of a batch is with the application, or on its way elsewhere. The caller holds mu.
func (l *Ledger) hasSiblingsAtWork(e *entry, r *record) bool {
	for i := range e.size() {
		if x := e.seen(i); x != nil && x != r && (x.state == inFlight || x.flags.has(busy) || x.flags.has(leaving)) {
			return true
		}
	}
	return false
}

// giveBack has the broker send a message to whichever consumer. The caller holds mu.
func (l *Ledger) giveBack(ref Ref, e *entry, r *record) ask {
	l.table.drop(e, r)
	l.table.move(r, due)
	return l.ask(ref, e, r)
}

// letGo lets go of what waits here of a batch of which a message is asked for: the broker sends the whole batch, to whichever consumer.
// The caller holds mu.
func (l *Ledger) letGo(ref Ref, e *entry, r *record) {
	for i := range e.size() {
		x := e.at(i)
		if x == r || x.state != waiting && x.state != ready || x.flags.has(leaving) || x.flags.has(busy) {
			continue
		}
		if x.state == ready {
			l.expect(refOf(ref.slot(), i), e, x, check+l.o.AskDelay)
		} else {
			l.table.drop(e, x)
		}
	}
}

// expect lets go of a message that the broker is to send again, and has it looked after when d is over. The caller holds mu.
func (l *Ledger) expect(ref Ref, e *entry, r *record, d time.Duration) {
	l.untrack(ref, r)
	r.flags &^= timed
	l.table.drop(e, r)
	l.table.move(r, due)
	l.nacks.TrackFor(uint64(ref), d)
}

// GaveBack tells that everything was given back, as by a lost connection: what the application had is not its own any more, and comes again
// to whichever consumer, without being counted. What is offered is withdrawn.
func (l *Ledger) GaveBack() {
	l.mu.Lock()
	for l.offer != nil {
		l.withdraw()
	}
	l.mu.Unlock()
	l.Disconnected()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.table.away = false                 // what comes next is another consumer's
	for slot, r := range l.table.asked { // the next consumer knows nothing of it
		r.more = false
		l.table.asked[slot] = r
	}
	for _, s := range l.table.streams {
		s.cover = cover{} // closing has sent it
		for m := range l.table.messages(s) {
			if m.r.state == inFlight && !m.r.flags.has(busy) {
				m.r.flags |= uncounted
				l.expect(m.ref, m.e, m.r, lostTime)
			}
		}
	}
}
