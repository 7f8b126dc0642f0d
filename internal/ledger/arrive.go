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

// deliveryOf is the hand-over by which the application has a message, with the message if it is kept.
func deliveryOf(ref Ref, e *entry, r *record) Delivery {
	return Delivery{Consumer: e.stream().consumer, Message: r.msg(), Ref: ref, Count: r.count, Hand: r.hand, Doubtful: r.flags.has(doubtful), ID: r.id()}
}

// Verdict says what to do with a message that arrived.
type Verdict uint8

const (
	Deliver      Verdict = iota // hand it to the application, which has it from now on
	Keep                        // nothing: it is kept until it is due
	Drop                        // nothing: it could not be kept, and is asked for when due
	Skip                        // nothing: the application gets another copy of it
	AckDuplicate                // acknowledge it again by d.ID, silently: the application settled it; AckedAgain must follow
)

// Retry is what a message of the retry topic says of itself, and what else is known of a message from before it came here.
type Retry struct {
	Count    uint32        // what was counted before it was published again
	Attempts uint32        // how often it was delivered, by whichever consumer; 0 if nobody has written that down
	Wait     time.Duration // how long it is to wait here still
}

// Arrive takes a message that the inner consumer delivered. It fills d if that is to be delivered or swallowed.
func (l *Ledger) Arrive(cm pulsar.ConsumerMessage, retry Retry, d *Delivery) (v Verdict) {
	a := arrival{msg: cm.Message, id: cm.ID(), weight: l.weigh(cm.Message), count: cm.RedeliveryCount()}
	topic := cm.Topic()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return Skip
	}
	t, id := &l.table, a.id
	s := t.stream(topic, cm.Consumer)
	a.old = t.isOld(s, id) && !l.o.NonDurable // the broker sends it again, to whichever consumer
	switch {
	case s.inactive || a.old && s.begins: // it was prefetched before
		return l.miss(s, id)
	case a.old && s.run.own: // likewise, and certainly comes again
		l.stats.Dropped++
		return Drop
	}
	if s.taken++; s.taken == s.again { // what was acknowledged meanwhile is not sure yet
		l.startRounds()
	}
	key := entryOf(id)
	if t.o.RedeliversAll {
		s.run.arrive(key, indexOf(id))
	}
	if !s.newest.before(key) && !t.isArriving(s, key) && s.stage(key) > unacked {
		t.follow(s, none)
		t.restage(s, key, open)
		d.Consumer, d.ID = cm.Consumer, wholeOf(id)
		return AckDuplicate
	}
	ref, e := t.add(id, key, s)
	e.flags &^= adopted
	t.arrived = ref.slot()
	current := uint32(none)
	if e.isBatch() {
		current = ref.slot()
		if l.indexAcks != NoIndexAcks {
			l.observeIndexAcks(ref, e)
		}
		e.batch.last = ref.index()
		s.largest = max(s.largest, e.size())
	}
	defer t.follow(s, current) // which may let go of what is settled, but for what has just arrived
	r, unasked := e.at(ref.index()), false
	switch r.state {
	case unseen:
		v = l.first(ref, e, a, retry)
	case acked:
		e.flags |= ackWhole
		t.name(ref, r, id)
		d.Consumer, d.ID = cm.Consumer, toAck(e, id, e.batch.acked)
		if !e.isBatch() { // else more of it may be about to arrive
			t.settleEntry(ref.slot(), e)
		}
		return AckDuplicate
	default:
		unasked = t.asked[ref.slot()].at.IsZero() && !r.flags.has(uncounted)
		v = l.copy(ref, e, r, a, retry)
	}
	if a.old {
		r.flags |= doubtful
	}
	if v == Deliver {
		d.Consumer, d.Message, d.ID, d.Ref = cm.Consumer, cm.Message, id, ref
		d.Count, d.Hand, d.Unasked, d.Doubtful = r.count, r.hand, unasked, a.old
	}
	return v
}

// miss drops what was prefetched before a partition became this consumer's, or while it is another's. The caller holds mu.
func (l *Ledger) miss(s *stream, id pulsar.MessageID) Verdict {
	l.stats.Dropped++
	if s.missed == nil || entryOf(id).before(entryOf(s.missed)) {
		s.missed = id
	}
	if !s.inactive {
		l.startRounds()
	}
	return Drop
}

// arrival is a message that arrives, of which all is known that it has to be asked for.
type arrival struct {
	msg    pulsar.Message
	id     pulsar.MessageID
	weight weight
	count  uint32
	old    bool // it came by a connection that was lost
}

// first enters a message that was not seen before.
func (l *Ledger) first(ref Ref, e *entry, a arrival, retry Retry) Verdict {
	count, t := a.count, &l.table
	if b := e.batch; e.isBatch() {
		if b.seen == 0 {
			b.base = count
		} else if b.stream.current != ref.slot() { // it comes again, though this message of it did not come before
			e.flags |= ackWhole
		}
		if count = min(b.base, count); retry.Attempts > 0 { // the broker's has what siblings failed
			count = 0
		}
	}
	r := t.enter(ref, e, a.id, max(retry.Attempts, count+min(retry.Count, ^count)))
	if retry.Attempts > 0 {
		r.hand = 1 // it is no first hand-over, and the count is its own and not its batch's
	}
	if retry.Wait <= 0 {
		if l.o.Timed {
			l.handed(t.timing(ref, e))
		}
		t.keep(ref, e, r, a.msg, a.weight, false)
		return Deliver
	}
	return l.waitsHere(ref, e, r, a, retry.Wait)
}

// waitsHere has a message wait that the application is not to have yet.
func (l *Ledger) waitsHere(ref Ref, e *entry, r *record, a arrival, wait time.Duration) Verdict {
	t := &l.table
	t.move(r, waiting)
	r.flags |= uncounted
	l.waitsFor(ref, e, wait, NoCause)
	l.nacks.TrackFor(uint64(ref), wait)
	return l.buffered(!a.old && t.keep(ref, e, r, a.msg, a.weight, false))
}

// copy takes another delivery of a message that is not settled.
func (l *Ledger) copy(ref Ref, e *entry, r *record, a arrival, retry Retry) Verdict {
	t := &l.table
	e.flags |= ackWhole
	if r.state == inFlight && r.flags.has(doubtful) {
		l.nacks.Untrack(uint64(ref)) // nobody has to ask for it any more
	}
	r.flags &^= doubtful
	asked := l.answered(ref.slot())
	switch r.state {
	case due:
		if r.flags.has(busy) {
			break
		}
		if n := r.count + min(1, ^r.count); retry.Attempts > n { // another consumer had it meanwhile, and failed
			r.count, r.flags = retry.Attempts, r.flags|uncounted
			r.hand++
			if retry.Wait > 0 {
				t.name(ref, r, a.id)
				return l.waitsHere(ref, e, r, a, retry.Wait)
			}
		}
		if !asked.IsZero() && l.at.idle.Sub(asked) > time.Second {
			l.stats.Late++
		}
		t.again(e, r, a.count)
		l.countRedelivery(r)
		t.name(ref, r, a.id)
		t.hand(r)
		t.keep(ref, e, r, a.msg, a.weight, false)
		l.nacks.Untrack(uint64(ref))
		return Deliver
	case ready: // it waits for the application already
		t.newer[ref] = a.id
		return Skip
	case inFlight:
		t.newer[ref] = a.id
		return l.buffered(r.isKept())
	default: // it waits
	}
	kept := !a.old && t.keep(ref, e, r, a.msg, a.weight, r.flags.has(leaving))
	if !kept {
		t.drop(e, r)
		t.name(ref, r, a.id)
	}
	return l.buffered(kept)
}

// countRedelivery counts a redelivery, unless the message is to be given up instead.
func (l *Ledger) countRedelivery(r *record) {
	if l.o.MaxDeliveries == 0 || r.count < l.o.MaxDeliveries {
		l.stats.Redelivered++
	}
}

// buffered counts an early copy.
func (l *Ledger) buffered(kept bool) Verdict {
	if kept {
		l.stats.Buffered++
		return Keep
	}
	l.stats.Dropped++
	return Drop
}

// Next fills d with the next message that is due and here; the application has it from now on. Where it is the turn of what is new, that is only
// what was offered before, and not taken.
func (l *Ledger) Next(d *Delivery, newsTurn bool) (ok bool) {
	if !l.hasNext.Load() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &l.table
	if newsTurn && !t.offered {
		return false
	}
	for len(t.ready) > 0 {
		ref := t.ready[0]
		t.ready = t.ready[1:]
		e, r := t.at(ref)
		if r == nil || r.state != ready || r.flags.has(busy) {
			continue
		}
		had := !r.flags.has(uncounted)
		l.nacks.Untrack(uint64(ref))
		t.stays(r)
		if t.again(e, r, r.msg().RedeliveryCount()); had {
			l.countRedelivery(r)
		}
		was := r.flags & doubtful
		t.hand(r)
		r.flags |= was
		l.hasNext.Store(len(t.ready) > 0)
		t.offered = false
		*d = deliveryOf(ref, e, r)
		d.Unasked = true
		if t.memory.bytes > t.memory.limit { // it was kept though there was no room, since it had been on offer
			t.drop(e, r)
		}
		return true
	}
	t.ready, t.offered = nil, false
	l.hasNext.Store(false)
	return false
}
