// Package delivery decides what becomes of every message between the consumer it came from and the application.
//
// The Table is a state machine: events go in as method calls, actions come out as results. It starts no goroutine, reads
// no clock, calls no consumer and takes no lock; its owner does. docs/architecture.md has its states and moves as a table.
package delivery

import (
	"math"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/slotmap"
)

const (
	// RequestTimeout is how long a request for redelivery is believed to be under way, once the consumer has sent it.
	RequestTimeout = 30 * time.Second
	// Remember is how long a settled entry that was redelivered is remembered, so that a late copy is not handed out
	// again. It is short, since an operator's cursor reset is swallowed for as long.
	Remember = 10 * time.Second
	// What was asked for this often and did not come went to another consumer. Where the broker rewinds there is no
	// count at the broker to fall back on, so the own one is kept longer.
	triesShared, triesRewinds = 2, 20
)

// Table knows every message that was delivered and is not settled. It is not safe for concurrent use.
type Table struct {
	o Options

	entries *slotmap.Map[entryID, entry]
	streams map[string]*stream
	latest  *stream // the stream of the last arrival, usually that of the next
	ready   []Ref
	states  [acked + 1]int // how many messages are in each

	rare
	heldBytes int64
	largest   int64 // copy of a message that arrived

	recent  []recent // settled entries, the oldest first
	passing *span    // of the cumulative acknowledgement that is under way

	// Forget has the messages for which Due is to be called after Remember. Whoever calls a method takes them out.
	Forget []Ref

	Redelivered, Held, Dropped, Late uint64 // see redelivery.Stats
}

// rare is what few messages have at a time.
type rare struct {
	newer  map[Ref]pulsar.MessageID // deliveries of what the application has of an older one
	copies map[Ref]pulsar.Message   // held back
	asked  map[uint32]request       // entries: the request under way, unless the broker rewinds
	coming int64                    // messages that are asked for
}

// request is one for redelivery of an entry.
type request struct {
	at   time.Time
	size int32 // of the entry, in messages
}

func newRare() rare {
	return rare{map[Ref]pulsar.MessageID{}, map[Ref]pulsar.Message{}, map[uint32]request{}, 0}
}

// Options are what a Table is told about the consumer.
type Options struct {
	// Rewinds tells that a request for one message makes the broker send everything that is unacknowledged, as it does on
	// Exclusive and Failover.
	Rewinds bool
	// HoldLimit is how many bytes of early copies are held.
	HoldLimit int64
	// RequestTimeout is how long a request is believed to be under way.
	RequestTimeout time.Duration
	// Ahead is how long before its time what waits is asked for, and then held.
	Ahead time.Duration
	// IndexAcks tells that the client acknowledges the messages of a batch one by one. A broker that does not do so itself
	// leaves settled siblings out of what it sends again, but waits for an acknowledgement of the whole entry.
	IndexAcks bool
	// AckDelay is how long an acknowledgement may be under way, so that a request for another message overtakes it. Where
	// the broker rewinds it sends the message again then.
	AckDelay time.Duration
}

// New returns an empty table.
func New(o Options) *Table {
	return &Table{
		o:       o,
		entries: slotmap.New[entryID, entry](),
		streams: make(map[string]*stream),
		rare:    newRare(),
	}
}

// Next returns the next message that is due and whose copy is here already; the application has it from now on.
func (t *Table) Next() (pulsar.ConsumerMessage, bool) {
	for len(t.ready) > 0 {
		ref := t.ready[0]
		t.ready = t.ready[1:]
		e, r := t.at(ref)
		if r == nil || r.state != ready {
			continue
		}
		msg, newest := t.copies[ref], r.id
		t.drop(ref)
		t.count(e, r, msg)
		t.hand(ref, r, msg.ID())
		if newest != r.id {
			t.newer[ref] = newest
		}
		return pulsar.ConsumerMessage{Consumer: e.batch.stream.consumer, Message: msg}, true
	}
	t.ready = nil
	return pulsar.ConsumerMessage{}, false
}

// HasNext reports whether Next may have a message.
func (t *Table) HasNext() bool { return len(t.ready) > 0 }

// Count returns the redelivery count of an unsettled message: how often the application had it before.
func (t *Table) Count(id pulsar.MessageID) (count uint32, ok bool) {
	_, _, r := t.find(id)
	if r == nil || r.state == acked {
		return 0, false
	}
	return r.count, true
}

// Await notes that the application took a message, and that the time for which it may have it is measured. Await reports
// false if the application no longer has this delivery of it.
func (t *Table) Await(id pulsar.MessageID) (Ref, bool) {
	ref, _, r := t.findHeld(id)
	if r == nil {
		return Ref{}, false
	}
	r.flags |= measured
	return ref, true
}

// Has reports whether the application has this delivery of a message, and whether Await was called for it.
func (t *Table) Has(id pulsar.MessageID) (ref Ref, awaited, ok bool) {
	ref, _, r := t.findHeld(id)
	if r == nil {
		return Ref{}, false, false
	}
	return ref, r.flags.has(measured), true
}

// Nack moves a message from the application to those that wait until their delay is over. It says when Due is to be called:
// after delay, or so much sooner as messages are asked for ahead; and whom to ask at once, if that is sooner than now. ok is
// false where the nack changes nothing: a second one, one after the message was settled or timed out, or one that names an
// earlier delivery than the application's newest.
func (t *Table) Nack(id pulsar.MessageID, delay time.Duration, now time.Time) (ref Ref, a Action, ok bool) {
	ref, e, r := t.findHeld(id)
	if r == nil {
		return Ref{}, Action{}, false
	}
	t.move(ref, r, waiting)
	e.flags |= redelivered
	r.flags |= measured
	switch {
	case t.o.Ahead == 0 || delay <= 0:
	case delay > t.o.Ahead:
		r.flags |= asksAhead
		delay -= t.o.Ahead
	default:
		a = t.askAhead(ref, e, r, now)
	}
	a.Again = delay
	return ref, a, true
}

// Carry adds what was counted before the message was published anew.
func (t *Table) Carry(ref Ref, count uint32) {
	if _, r := t.at(ref); r != nil && r.count <= math.MaxUint32-count {
		r.count += count
	}
}

// Postpone holds back a message that Arrive said to deliver, since it came before its time, which its owner measures.
func (t *Table) Postpone(ref Ref, msg pulsar.Message) {
	e, r := t.at(ref)
	if r == nil || r.state != held {
		return
	}
	t.move(ref, r, waiting)
	e.flags |= redelivered
	r.flags |= measured | postponed
	t.keep(ref, msg)
}

// Adopt enters a message that the application has although the table did not see it delivered, unless it is known.
func (t *Table) Adopt(id pulsar.MessageID, topic string, consumer pulsar.Consumer, count uint32) {
	if _, _, r := t.find(id); r != nil {
		return
	}
	key := KeyOf(id)
	slot, known := t.entries.Find(key.entryID())
	var s *stream
	if known {
		s = t.entries.At(slot).Value.batch.stream
	} else {
		s = t.stream(topic, consumer)
	}
	ref, e := t.add(key, id.BatchSize(), s)
	if !known && e.isBatch() {
		e.batch.run = run{begun: true, over: true}
	}
	t.enter(ref, e, id, count)
}

// Clear forgets everything, as after a seek.
func (t *Table) Clear() {
	t.entries.Clear()
	clear(t.streams)
	t.latest, t.ready, t.recent, t.Forget, t.rare, t.heldBytes = nil, nil, nil, nil, newRare(), 0
	t.states = [acked + 1]int{}
}

// Waiting returns how many messages are neither with the application nor settled: they wait for their delay, for the
// broker, or for the application to take them.
func (t *Table) Waiting() int { return t.states[waiting] + t.states[due] + t.states[ready] }

// NearLimit is where a warning is due. The broker stops sending at 50,000 unacknowledged messages for each consumer of a
// partition, on Shared and Key_Shared, by default (maxUnackedMessagesPerConsumer).
const NearLimit = 45_000

// Full reports whether the broker is about to stop sending more of the partition that the last message came from.
func (t *Table) Full() bool {
	return !t.o.Rewinds && t.latest != nil && t.latest.unsettled >= NearLimit
}

// Len returns how many entries are known.
func (t *Table) Len() int { return t.entries.Len() }

// HeldBytes returns the size of the early copies that are held back.
func (t *Table) HeldBytes() int64 { return t.heldBytes }
