package delivery

import (
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Action says what to do about a message whose time has come.
type Action struct {
	Ask   pulsar.Consumer  // if not nil, ask this consumer to redeliver
	ID    pulsar.MessageID // this message
	Again time.Duration    // if not 0, call Due again after it
}

// Due tells that a message's delay, its ack timeout or the time that an earlier Action named is over. Due does nothing for
// a message of which no time is measured. Whoever calls it sees to it that not another time is measured meanwhile.
func (t *Table) Due(ref Ref, now time.Time) Action {
	e, r := t.at(ref)
	if r == nil || !r.flags.has(measured) {
		return Action{}
	}
	switch r.state {
	case held, waiting:
		return t.over(ref, e, r, now)
	case due:
		tries := uint8(triesShared)
		if t.o.Rewinds {
			tries = triesRewinds
		}
		if r.tries++; r.tries > tries {
			t.forget(ref, e, r, now)
			return Action{}
		}
		return t.ask(ref, e, r, now)
	case settling:
		r.flags |= overdue
	case acked:
		if e.flags.has(extended) {
			e.flags &^= extended
			return Action{Again: Remember}
		}
		r.flags &^= measured
		if e.flags &^= remembered; e.isSettled() {
			t.release(ref.slot, e)
		}
	}
	return Action{}
}

// over acts for a message that waits, or that the application has for too long.
func (t *Table) over(ref Ref, e *entry, r *record, now time.Time) (a Action) {
	e.flags |= redelivered
	if r.flags.has(asksAhead) {
		r.flags &^= asksAhead
		a = t.askAhead(ref, e, r, now)
		a.Again = t.o.Ahead
		return a
	}
	if t.copies[ref] != nil {
		r.flags &^= measured
		t.move(ref, r, ready)
		t.ready = append(t.ready, ref)
		return a
	}
	t.move(ref, r, due)
	return t.ask(ref, e, r, now)
}

// askAhead requests a message that waits, unless a copy of it is here, or would be dropped: the broker counts those too.
func (t *Table) askAhead(ref Ref, e *entry, r *record, now time.Time) Action {
	coming := t.coming + int64(e.size())
	if last := t.entries.At(t.latest.current); last != nil && last.Value.isBatch() && !last.Value.batch.run.over {
		coming += int64(last.Value.size()) // the rest of a batch that is arriving
	}
	if t.copies[ref] != nil || t.heldBytes+coming*t.largest > t.o.HoldLimit {
		return Action{}
	}
	return t.ask(ref, e, r, now)
}

// unask notes that no request for an entry is under way any more.
func (t *Table) unask(slot uint32) {
	t.coming -= int64(t.asked[slot].size)
	delete(t.asked, slot)
}

// ask requests a message, unless it is on its way.
func (t *Table) ask(ref Ref, e *entry, r *record, now time.Time) Action {
	s, run := e.batch.stream, &e.batch.run
	if t.o.Rewinds {
		run = &s.run
	}
	a := Action{Again: t.o.RequestTimeout}
	asked := t.lastAsked(ref, s)
	if wait := t.o.RequestTimeout - now.Sub(asked); !asked.IsZero() && wait > 0 {
		a.Again = wait
	} else if r.tries > 0 || !run.willReach(t.key(ref)) {
		if t.o.Rewinds {
			s.asked = now
		} else {
			t.unask(ref.slot)
			t.asked[ref.slot] = request{now, e.size()}
			t.coming += int64(e.size())
		}
		a.Ask, a.ID = s.consumer, t.newest(ref, r)
	}
	return a
}
