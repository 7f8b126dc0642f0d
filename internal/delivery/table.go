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
	rewinds        bool
	holdLimit      int64
	requestTimeout time.Duration

	entries *slotmap.Map[entryID, entry]
	streams map[string]*stream
	latest  *stream // the stream of the last arrival, usually that of the next
	ready   []Ref
	states  [acked + 1]int // how many messages are in each

	rare
	heldBytes int64

	// Forget has the messages for which Due is to be called after Remember. Whoever calls a method takes them out.
	Forget []Ref

	Redelivered, Held, Dropped, Late uint64 // see redelivery.Stats
}

// rare is what few messages have at a time.
type rare struct {
	newer  map[Ref]pulsar.MessageID // deliveries of what the application has of an older one
	copies map[Ref]pulsar.Message   // held back
	leads  map[Ref]time.Duration    // of what waits: how long before its time it is asked for
	asked  map[uint32]time.Time     // entries: when the request under way was made, unless the broker rewinds
}

func newRare() rare {
	return rare{map[Ref]pulsar.MessageID{}, map[Ref]pulsar.Message{}, map[Ref]time.Duration{}, map[uint32]time.Time{}}
}

// New returns an empty table. rewinds tells that a request for one message makes the broker send everything that is
// unacknowledged, as it does on Exclusive and Failover. Early copies are held while they have holdLimit bytes together. A
// request is believed to be under way for requestTimeout.
func New(rewinds bool, holdLimit int64, requestTimeout time.Duration) *Table {
	return &Table{
		rewinds:        rewinds,
		holdLimit:      holdLimit,
		requestTimeout: requestTimeout,
		entries:        slotmap.New[entryID, entry](),
		streams:        make(map[string]*stream),
		rare:           newRare(),
	}
}

// Verdict says what to do with a message that arrived.
type Verdict uint8

const (
	Deliver   Verdict = iota // hand it to the application, which has it from now on
	Redeliver                // likewise; and the time that was measured for its request is over
	Hold                     // nothing: it was kept, or dropped, until it is due
	Swallow                  // acknowledge it again, silently: the application settled it
)

// Arrive takes a message that the consumer delivered.
func (t *Table) Arrive(cm pulsar.ConsumerMessage, now time.Time) (Verdict, Ref) {
	id := cm.ID()
	s := t.stream(cm.Topic(), cm.Consumer)
	key := KeyOf(id)
	ref, e := t.add(key, id.BatchSize(), s)
	t.follow(s, ref.slot)
	asked := t.answered(key, ref, e)

	r := e.at(key.Index)
	switch r.state {
	case unseen:
		count := cm.RedeliveryCount()
		if b := e.batch; e.isBatch() {
			if b.seen == 0 {
				b.base = count
			}
			count = min(b.base, count)
		}
		t.enter(ref, e, id, count)
		return Deliver, ref
	case acked:
		return Swallow, ref
	}
	e.flags |= redelivered
	switch r.state {
	case due:
		if !asked.IsZero() && now.Sub(asked) > time.Second {
			t.Late++
		}
		t.count(e, r, cm)
		t.hand(ref, r, id)
		return Redeliver, ref
	case ready: // its copy waits for the application
	default:
		t.keep(ref, cm.Message)
	}
	if r.state == held || r.state == settling && r.before == held {
		t.newer[ref] = id
	} else {
		r.id = id
	}
	return Hold, ref
}

// follow notes which entry's messages are arriving now.
func (t *Table) follow(s *stream, slot uint32) {
	if s.current == slot {
		return
	}
	if last := t.entries.At(s.current); last != nil { // batch-index acks may have filtered its tail out
		last.Value.batch.run.over = true
		t.settleEntry(s.current, &last.Value)
	}
	s.current = slot
}

// answered notes a delivery. If it answers a request, answered returns when that was made.
func (t *Table) answered(key Key, ref Ref, e *entry) (asked time.Time) {
	s, another := e.batch.stream, true
	if e.isBatch() {
		another = e.batch.run.arrive(key, e.size())
	}
	if t.rewinds {
		another = s.run.arrive(key, endless)
	}
	if another {
		asked = t.lastAsked(ref, s)
		delete(t.asked, ref.slot)
		s.asked = time.Time{}
	}
	return asked
}

func (t *Table) lastAsked(ref Ref, s *stream) time.Time {
	if t.rewinds {
		return s.asked
	}
	return t.asked[ref.slot]
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
	ref, _, r := t.find(id)
	if r == nil || r.state != held || r.isStale(id) {
		return Ref{}, false
	}
	r.flags |= measured
	return ref, true
}

// Nack moves a message from the application to those that wait until their delay is over, which its owner then measures:
// it calls Due lead before that, and the table asks so much ahead and holds what comes. Nack reports false where the nack
// changes nothing: a second one, one after the message was settled or timed out, or one that names an earlier delivery
// than the application's newest.
func (t *Table) Nack(id pulsar.MessageID, lead time.Duration) (Ref, bool) {
	ref, e, r := t.find(id)
	if r == nil || r.state != held || r.isStale(id) {
		return Ref{}, false
	}
	t.move(ref, r, waiting)
	e.flags |= redelivered
	r.flags |= measured
	if lead > 0 {
		t.leads[ref] = lead
	}
	return ref, true
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
	t.latest, t.ready, t.Forget, t.rare, t.heldBytes = nil, nil, nil, newRare(), 0
	t.states = [acked + 1]int{}
}

// Waiting returns how many messages are neither with the application nor settled: they wait for their delay, for the
// broker, or for the application to take them.
func (t *Table) Waiting() int { return t.states[waiting] + t.states[due] + t.states[ready] }

// NearLimit is where a warning is due. The broker stops sending at 50,000 unacknowledged messages for each consumer of a
// partition, on Shared and Key_Shared, by default (maxUnackedMessagesPerConsumer).
const NearLimit = 45_000

// Full reports whether the broker is about to stop sending more of the partition that the last message came from.
func (t *Table) Full() bool { return !t.rewinds && t.latest != nil && t.latest.unsettled >= NearLimit }

// Len returns how many entries are known.
func (t *Table) Len() int { return t.entries.Len() }

// HeldBytes returns the size of the early copies that are held back.
func (t *Table) HeldBytes() int64 { return t.heldBytes }
