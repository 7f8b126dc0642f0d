package delivery

import (
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Settling is a message on its way to being acknowledged, or published elsewhere and then acknowledged.
type Settling struct {
	Ref      Ref
	Consumer pulsar.Consumer
	ID       pulsar.MessageID // of the newest delivery: what to acknowledge
	Held     bool             // the application had it, so that its ack timeout was measured
	Count    uint32           // how often the application had it before

	// Undecided tells that the acknowledgement may be taken back, as by a transaction that is aborted. The message is
	// forgotten by Settled, and is a new one if it comes again.
	Undecided bool

	entry entryID
}

// Standing says how a message stands with those who want to settle it.
type Standing uint8

const (
	Unknown Standing = iota
	Unsettled
	Busy // being settled by another
	Settled
)

// Settle begins to settle a message that is Unsettled: Settled must follow. It is final unless Settled is told of an error:
// meanwhile the message is not handed out. Of one that is Busy it returns the Ref alone.
func (t *Table) Settle(id pulsar.MessageID) (Settling, Standing) {
	ref, e, r := t.find(id)
	switch {
	case r == nil:
		return Settling{}, Unknown
	case r.state == settling:
		return Settling{Ref: ref}, Busy
	case r.state == acked:
		return Settling{}, Settled
	}
	r.before = r.state
	t.move(ref, r, settling)
	return Settling{
		Ref:      ref,
		Consumer: e.batch.stream.consumer,
		ID:       t.newest(ref, r),
		Held:     r.before == held,
		Count:    r.count,
		entry:    t.entries.At(ref.slot).Key,
	}, Unsettled
}

// SettleWaiting is Settle for a message that waits and was delivered count times before; any other is Unknown.
func (t *Table) SettleWaiting(id pulsar.MessageID, count uint32) (Settling, Standing) {
	if _, _, r := t.find(id); r == nil || r.state != waiting || r.count != count {
		return Settling{}, Unknown
	}
	return t.Settle(id)
}

// Knows reports whether the table knows a message, those included that were settled of late. The topic may be "".
func (t *Table) Knows(id pulsar.MessageID, topic string, now time.Time) bool {
	if _, _, r := t.find(id); r != nil {
		return true
	}
	s := t.streams[topic]
	if topic == "" && len(t.streams) == 1 {
		s = t.latest
	}
	return s != nil && t.hasPassed(s, KeyOf(id), now)
}

// Outcome is what remains to be done after settling.
type Outcome struct {
	Untrack bool             // no time is measured for the message any more: it is settled, or its copy is here
	Again   pulsar.MessageID // if not nil, acknowledge this as well: a delivery that came meanwhile, or the whole entry
	Due     bool             // settling failed and the message was due meanwhile: call Due now
}

// Settled ends what Settle began. After an error the message is where it was before.
func (t *Table) Settled(s Settling, err error, now time.Time) (o Outcome) {
	t.expire(now)
	e, r := t.at(s.Ref)
	if r == nil || r.state != settling || t.entries.At(s.Ref.slot).Key != s.entry {
		return Outcome{} // it was forgotten or settled meanwhile, and its place may be another's
	}
	if err != nil {
		t.move(s.Ref, r, r.before)
		if r.state == due && t.copies[s.Ref] != nil { // what was asked for has come meanwhile
			t.move(s.Ref, r, ready)
			r.flags &^= measured | overdue
			o.Untrack = true
		}
		if r.state == ready {
			t.ready = append(t.ready, s.Ref)
		}
		o.Due = r.flags.has(overdue)
		r.flags &^= overdue
		return o
	}
	if s.Undecided {
		t.forget(s.Ref, e, r, now)
		return Outcome{Untrack: true}
	}
	newest := t.newest(s.Ref, r)
	if newest != s.ID {
		o.Again = newest
	}
	if b := e.batch; t.o.IndexAcks && e.isBatch() && e.flags.has(redelivered) && b.acked+1 == int32(len(b.records)) {
		o.Again = pulsar.NewMessageID(s.entry.ledger, s.entry.entry, -1, newest.PartitionIdx())
	}
	t.settleRecord(s.Ref, e, r, now)
	o.Untrack = true
	return o
}

// SettleTo settles all messages of id's partition up to and including id, for a cumulative acknowledgement that succeeded.
func (t *Table) SettleTo(id pulsar.MessageID, now time.Time) (settled []Ref) {
	t.expire(now)
	to := KeyOf(id)
	slot, ok := t.entries.Find(to.entryID())
	if !ok {
		return nil // an id that was settled before, or never seen: nothing tells of which partition it is
	}
	s := t.entries.At(slot).Value.batch.stream
	t.passing = &span{since: now, at: now}
	for slot, item := range t.entries.All() {
		if item.Value.batch.stream != s {
			continue
		}
		id := item.Key
		for i := range item.Value.size() {
			ref := Ref{slot, i}
			e, r := t.at(ref)
			if r == nil || r.state == acked || to.before(id.key(i)) {
				continue
			}
			t.settleRecord(ref, e, r, now)
			settled = append(settled, ref)
		}
	}
	t.expireSpans(s, now)
	s.passed(t.passing)
	t.passing = nil
	return settled
}

// Newest returns what to acknowledge the message of id with, and at which consumer; nil if it is unknown.
func (t *Table) Newest(id pulsar.MessageID) (pulsar.Consumer, pulsar.MessageID) {
	if ref, e, r := t.find(id); r != nil {
		return e.batch.stream.consumer, t.newest(ref, r)
	}
	return nil, id
}

// settleRecord marks a message settled.
func (t *Table) settleRecord(ref Ref, e *entry, r *record, now time.Time) {
	t.drop(ref)
	if r.state == due || r.state == settling && r.before == due {
		e.batch.stream.asked = time.Time{} // nothing may come of the request any more
	}
	r.flags &^= asksAhead
	t.move(ref, r, acked)
	r.flags &^= measured | overdue
	if e.isBatch() {
		e.batch.acked++
	}
	e.batch.stream.unsettled--
	t.settleEntry(ref.slot, e, now)
}

// settleEntry lets go of an entry that has nothing unsettled and whose run is over. If late copies of it are to be
// expected it is remembered for a while: one that was redelivered, and a batch of which not all messages were seen, since
// the broker may have filtered them, or may be about to send all again.
func (t *Table) settleEntry(slot uint32, e *entry, now time.Time) {
	over := !e.isBatch() || e.batch.run.over
	switch {
	case !e.isSettled():
	case e.flags.has(remembered):
		e.flags |= extended
	case e.flags.has(redelivered), over && e.isBatch() && e.batch.seen < e.size():
		e.flags |= remembered
		t.remember(slot, e)
	case !over: // more of the batch is about to arrive
	case t.o.Rewinds && t.o.AckDelay > 0 && t.passing != nil: // one by one they would all be looked at by the next of these
		t.passing.add(t.entries.At(slot).Key, e.size())
		t.release(slot, e)
	case t.o.Rewinds && t.o.AckDelay > 0:
		t.recent = append(t.recent, recent{t.entries.At(slot).Key, now})
		e.batch.stream.leave(slot)
	default:
		t.release(slot, e)
	}
}

// recent is a settled entry whose acknowledgement may still be under way.
type recent struct {
	id entryID
	at time.Time
}

// late returns how long after a message was settled copies of it may come: until its acknowledgement has arrived and, if
// requests are made, their answers too.
func (t *Table) late() time.Duration {
	if t.Waiting() > 0 {
		return max(t.o.AckDelay, Remember)
	}
	return t.o.AckDelay
}

// expire lets go of settled entries of which no copy is to be expected any more.
func (t *Table) expire(now time.Time) {
	after := t.late()
	for len(t.recent) > 0 && now.Sub(t.recent[0].at) > after {
		slot, ok := t.entries.Find(t.recent[0].id)
		t.recent = t.recent[1:]
		if !ok {
			continue
		}
		if e := &t.entries.At(slot).Value; e.isSettled() && !e.flags.has(remembered) {
			t.release(slot, e)
		}
	}
}

// remember has the time measured for one of an entry's messages, all of which are settled.
func (t *Table) remember(slot uint32, e *entry) {
	for i := range e.size() {
		if r := e.at(i); r.state == acked {
			r.flags |= measured
			t.Forget = append(t.Forget, Ref{slot, i})
			return
		}
	}
}

// forget lets go of a message that is somebody else's now: another consumer's, or a transaction's.
func (t *Table) forget(ref Ref, e *entry, r *record, now time.Time) {
	t.drop(ref)
	delete(t.newer, ref)
	t.states[r.state]--
	e.batch.stream.unsettled--
	if !e.isBatch() {
		t.release(ref.slot, e)
		return
	}
	*r = record{}
	if e.batch.seen--; e.batch.seen == 0 {
		t.release(ref.slot, e)
		return
	}
	t.settleEntry(ref.slot, e, now)
}

func (t *Table) release(slot uint32, e *entry) {
	t.states[acked] -= int(e.acked())
	t.unask(slot)
	e.batch.stream.leave(slot)
	t.entries.Remove(slot)
}
