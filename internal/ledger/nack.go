package ledger

import (
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Find returns the hand-over of a message that the application has, with the message if that is kept here; current is false if it
// has another one or none, and known is false if the Ledger does not know the message. Of one that is settled d may be empty.
func (l *Ledger) Find(n Name) (d Delivery, current, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ref, e, r := l.find(n)
	if r == nil {
		return d, false, l.table.isSettled(n)
	}
	return deliveryOf(ref, e, r), isWith(r, n), true
}

// isWith reports whether the application has a message by the hand-over that n names.
func isWith(r *record, n Name) bool {
	return r.state == inFlight && !r.isStale(n.ID) && (!n.HasHand || n.Hand == r.hand && (!n.Own || n.Count == r.count))
}

// Adopt enters a message that the application has although the Ledger does not know it. It waits at the broker, which alone
// can say whether it is settled. The topic is what the message says, which is believed where nothing better is known.
func (l *Ledger) Adopt(n Name, topic string, consumer pulsar.Consumer, count uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, _, r := l.table.find(n); r != nil || l.closed || l.table.isSettled(n) {
		return
	}
	s := l.table.streamOf(n)
	if s == nil {
		s = l.table.stream(topic, consumer)
	}
	if s.consumer == nil { // nothing was taken of it
		s.consumer = consumer
	}
	ref, e := l.table.add(n.ID, entryOf(n.ID), s)
	r := l.table.enter(ref, e, n.ID, count)
	if r.flags |= doubtful; e.batch.total == 0 {
		e.flags |= adopted
	}
	if n.Own { // or a nack of that would be stale
		r.hand, r.count = n.Hand, n.Count
	}
}

// isCurrent reports whether the application has a message by hand-over d.
func (l *Ledger) isCurrent(r *record, d Delivery) bool {
	return r != nil && r.state == inFlight && r.id() == d.ID && r.hand == d.Hand && !l.closed
}

// Why says why a message waits.
type Why uint8

const (
	Failed      Why = iota // the application failed on it
	Snoozed                // the application wants it later: this hand-over does not count
	Leaving                // the application failed on it, and it is to be published elsewhere
	SnoozedAway            // as Snoozed, and it is to be published elsewhere
	GivenUp                // it is to be published elsewhere, and the application did not have it this time
	Unreadable             // what is here is not to be handed out again, for instance since it could not be decrypted
)

// Nack starts the delay of a message that the application has by hand-over d, unless it was settled or timed out meanwhile: then had
// is false. msg is nil if there is no more than its id; one that is to be published elsewhere is kept here wherever it is to wait. Nack
// returns how the message stood, and whether it is kept.
func (l *Ledger) Nack(d Delivery, delay time.Duration, msg pulsar.Message, why Why) (s Settling, had, kept bool) {
	delay = max(0, delay)
	w := l.weigh(msg)
	l.mu.Lock()
	t, ref := &l.table, d.Ref
	e, r := t.at(ref)
	if !l.isCurrent(r, d) {
		l.mu.Unlock()
		return s, false, false
	}
	r.count = max(r.count, d.Count) // another consumer may have had it since
	l.describe(ref, e, r, &s)
	l.waitsFor(ref, e, delay, Nacked)
	if r.flags.has(timed) {
		l.timeouts.Untrack(uint64(ref))
		r.flags &^= timed
	}
	t.move(r, waiting)
	leaves := why == Leaving || why == GivenUp || why == SnoozedAway
	switch why {
	case GivenUp:
		r.flags |= uncounted
	case Snoozed, SnoozedAway:
		r.hand++
		r.flags |= uncounted
	case Failed, Leaving:
		l.failed(ref)
	case Unreadable:
	}
	switch {
	case r.flags.has(doubtful), why == Failed && !l.o.Keeps, why == Unreadable:
		t.drop(e, r)
	case msg != nil && (leaves || !r.isKept()): // with what it is to be published with
		t.keep(ref, e, r, msg, w, leaves)
	}
	kept = r.isKept()
	l.nacks.TrackFor(uint64(ref), delay)
	l.unlockAndNotify()
	return s, true, kept
}

// failed notes that the application failed on a message. The caller holds mu.
func (l *Ledger) failed(ref Ref) {
	l.outcome(true)
	if l.o.KeyOrder {
		if _, ok := l.table.failed[ref]; !ok {
			l.table.failed[ref] = l.Now()
		}
	}
}

// IsLast reports whether a message with this redelivery count is given up when the application does not settle it this time.
func (l *Ledger) IsLast(count uint32) bool { return l.o.isLast(count) }

// Touch restarts the ack timeout of a message, and reports whether the application has it.
func (l *Ledger) Touch(n Name) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	ref, e, r := l.find(n)
	if r == nil || !isWith(r, n) {
		return false
	}
	l.ripen()
	if r.flags.has(timed) { // else it is about to be
		l.timesOut(ref, e, 0)
		return l.timeouts.Touch(uint64(ref))
	}
	return true
}

// AckDeadline returns when a message's ack timeout is over, or zero if none runs.
func (l *Ledger) AckDeadline(d Delivery) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, r := l.table.at(d.Ref); !l.isCurrent(r, d) {
		return time.Time{}
	}
	l.ripen()
	left, ok := l.timeouts.Left(uint64(d.Ref))
	if !ok {
		return time.Time{}
	}
	return time.Now().Add(left)
}
