package ledger

import (
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Delivery is one hand-over of a message to the application.
type Delivery struct {
	Consumer pulsar.Consumer // the child of the inner consumer that owns the message
	Message  pulsar.Message
	Ref      Ref
	Count    uint32 // how often the application had it before
	Hand     uint8  // which hand-over of this message it is

	Unasked  bool // it comes back without a request for it: it waited here, or the broker rewound for another
	Doubtful bool // it came by a connection that is lost, so that another consumer may have it too

	ID pulsar.MessageID // of the delivery, or what to acknowledge it with if it is to be swallowed; nil of what no Ledger knows
}

// deliveryOf is the hand-over by which the application has a message; msg is nil if it is not here.
func deliveryOf(ref Ref, e *entry, r *record, msg pulsar.Message) Delivery {
	return Delivery{Consumer: e.stream().consumer, Message: msg, Ref: ref, Count: r.count, Hand: r.hand, ID: r.id}
}

// Verdict says what to do with a message that arrived.
type Verdict uint8

const (
	Deliver Verdict = iota // hand it to the application, which has it from now on
	Hold                   // nothing: it is kept until it is due
	Drop                   // nothing: it could not be kept, and is asked for when due
	Skip                   // nothing: the application gets another copy of it
	Swallow                // acknowledge it again, silently: the application settled it; AckedAgain must follow
)

// Retry is what a message of the retry topic says of itself.
type Retry struct {
	Count uint32        // what was counted before it was published again
	Wait  time.Duration // how long it is to be held back still
}

// Arrive takes a message that the inner consumer delivered. It fills d if that is to be delivered or swallowed.
func (l *Ledger) Arrive(cm pulsar.ConsumerMessage, retry Retry, d *Delivery) (v Verdict) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return Skip
	}
	t, id := &l.table, cm.ID()
	s := t.stream(cm.Topic(), cm.Consumer)
	if s.log.taken++; s.inactive { // it was prefetched before
		l.stats.Dropped++
		s.missed = id
		return Drop
	}
	if s.log.asking > 0 { // since a Clear
		l.unsent(s)
	}
	ref, e := t.add(id, s)
	if t.o.Rewinds {
		s.run.arrive(entryOf(id), ref.index())
	}
	current := uint32(none)
	if e.isBatch() {
		current = ref.slot()
		e.batch.last = ref.index()
		s.log.batch = max(s.log.batch, e.size())
		if e.batch.kept == 0 {
			e.batch.size = max(e.batch.size, payloadSize(cm.Message))
		}
	}
	defer t.follow(s, current) // which may let go of what is settled, but for what has just arrived
	r, unasked := e.at(ref.index()), false
	switch r.state {
	case unseen:
		v = l.first(ref, e, cm.Message, id, retry)
	case acked:
		l.repeated(e)
		t.acking[ref.slot()]++
		d.Consumer, d.Ref, d.ID = cm.Consumer, ref, l.toAck(e, id, e.batch.acked)
		return Swallow
	default:
		unasked = t.asked[ref.slot()].at.IsZero() && !r.flags.has(postponed)
		v = l.copy(ref, e, r, cm)
	}
	lost := l.isInDoubt(s) // it was prefetched before, and the broker sends it again, to whichever consumer
	if lost {
		r.flags |= doubtful
	}
	if v == Deliver {
		d.Consumer, d.Message, d.ID, d.Ref = cm.Consumer, cm.Message, id, ref
		d.Count, d.Hand, d.Unasked, d.Doubtful = r.count, r.hand, unasked, lost
	}
	return v
}

// first enters a message that was not seen before.
func (l *Ledger) first(ref Ref, e *entry, msg pulsar.Message, id pulsar.MessageID, retry Retry) Verdict {
	count := msg.RedeliveryCount()
	if b := e.batch; e.isBatch() {
		if b.seen == 0 {
			b.base = count
		} else if b.stream.current != ref.slot() { // it comes again, though this message of it did not come before
			l.repeated(e)
		}
		count = min(b.base, count)
	}
	r := l.table.enter(ref, e, id, count+min(retry.Count, ^count))
	if retry.Wait <= 0 {
		if l.o.Timed {
			l.handed(l.table.timing(ref, e))
		}
		return Deliver
	}
	l.table.move(ref, r, waiting)
	r.flags |= postponed
	l.waitsFor(ref, e, retry.Wait, NoCause)
	l.nacks.TrackFor(uint64(ref), retry.Wait)
	return l.held(l.keep(ref, e, msg, false))
}

// copy takes another delivery of a message that is not settled.
func (l *Ledger) copy(ref Ref, e *entry, r *record, cm pulsar.ConsumerMessage) (v Verdict) {
	t := &l.table
	l.repeated(e)
	r.flags &^= doubtful
	asked := l.answered(ref.slot())
	switch {
	case r.state == due:
		if !asked.IsZero() && l.at.idle.Sub(asked) > time.Second {
			l.stats.Late++
		}
		l.stats.Redelivered++
		t.again(e, r, cm.Message)
		t.hand(ref, r, cm.ID())
		l.nacks.Untrack(uint64(ref))
		return Deliver
	case r.state == ready, r.state == settling && r.before == ready: // one waits for the application already
		v = Skip
	default:
		v = l.held(l.keep(ref, e, cm.Message, t.shelf.messages[ref].leaving))
	}
	if r.state == held || r.state == settling && r.before == held {
		t.newer[ref] = cm.ID()
	} else {
		t.name(ref, r, cm.ID())
	}
	return v
}

// repeated notes that a message came more than once. Where nobody tells of lost connections that is the sign of one, and where
// the broker rewinds more is to come. The caller holds mu.
func (l *Ledger) repeated(e *entry) {
	e.flags |= repeated
	if l.o.Rewinds || !l.o.Signals {
		l.table.repeats(e.stream())
	}
}

// keep puts an early copy on the shelf, if it is to stay here and there is room. The caller holds mu.
func (l *Ledger) keep(ref Ref, e *entry, msg pulsar.Message, leaving bool) bool {
	return !l.isInDoubt(e.stream()) && l.table.keep(ref, e, msg, leaving)
}

// isInDoubt reports whether another consumer may have what is here of a stream. The caller holds mu.
func (l *Ledger) isInDoubt(s *stream) bool { return s.log.lost && !l.o.Fleeting }

// held counts an early copy.
func (l *Ledger) held(kept bool) Verdict {
	if kept {
		l.stats.Held++
		return Hold
	}
	l.stats.Dropped++
	return Drop
}

// Next fills d with the next message that is due and here; the application has it from now on.
func (l *Ledger) Next(d *Delivery) (ok bool) {
	if !l.hasNext.Load() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &l.table
	for len(t.ready) > 0 {
		ref := t.ready[0]
		t.ready = t.ready[1:]
		e, r := t.at(ref)
		if r == nil || r.state != ready {
			continue
		}
		msg, newest := t.drop(ref, e), r.id
		if !r.flags.has(postponed) {
			l.stats.Redelivered++
		}
		t.again(e, r, msg)
		t.hand(ref, r, msg.ID())
		if newest != r.id {
			t.newer[ref] = newest
		}
		l.hasNext.Store(len(t.ready) > 0)
		*d = deliveryOf(ref, e, r, msg)
		d.Unasked = true
		return true
	}
	t.ready = nil
	l.hasNext.Store(false)
	return false
}
