// Package delivery decides what becomes of every message between the consumer it came from and the application.
//
// The Table is a state machine: events go in as method calls, actions come out as results. It starts no goroutine, reads
// no clock, calls no consumer and takes no lock; its owner does. docs/architecture.md has its states and moves as a table.
package delivery

import (
	"math"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
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

	entries   map[entryID]*entry
	streams   map[string]*stream
	latest    *stream // the stream of the last arrival, usually that of the next
	spare     []*entry
	ready     []Key
	heldBytes int64
	states    [acked + 1]int // how many messages are in each

	// Forget has the keys for which Due is to be called after Remember. Whoever calls a method takes them out.
	Forget []Key

	Redelivered, Held, Dropped, Late uint64 // see redelivery.Stats
}

// New returns an empty table. rewinds tells that a request for one message makes the broker send everything that is
// unacknowledged, as it does on Exclusive and Failover. Early copies are held while they have holdLimit bytes together. A
// request is believed to be under way for requestTimeout.
func New(rewinds bool, holdLimit int64, requestTimeout time.Duration) *Table {
	return &Table{
		rewinds:        rewinds,
		holdLimit:      holdLimit,
		requestTimeout: requestTimeout,
		entries:        make(map[entryID]*entry),
		streams:        make(map[string]*stream),
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
func (t *Table) Arrive(cm pulsar.ConsumerMessage, now time.Time) Verdict {
	id := cm.ID()
	s := t.stream(cm.Topic(), cm.Consumer)
	key := KeyOf(id)
	e := t.entries[key.entryID()]
	if e == nil {
		e = t.add(key.entryID(), s)
	}
	e.stream = s
	if s.current != e {
		if last := s.current; last != nil { // batch-index acks may have filtered its tail out
			last.run.over = true
			t.settleEntry(last)
		}
		s.current = e
	}
	e.grow(key.Index, id.BatchSize())
	r := e.record(key.Index)
	asked := e.run.arrive(key, e.size())
	if t.rewinds {
		asked = s.run.arrive(key, endless)
	}

	switch r.state {
	case unseen:
		if e.seen == 0 {
			e.base = cm.RedeliveryCount()
		}
		e.seen++
		s.unsettled++
		r.count = min(e.base, cm.RedeliveryCount())
		t.hand(r, id)
		return Deliver
	case acked:
		return Swallow
	}
	e.redelivered = true
	r.newest = id
	switch r.state {
	case due:
		if !asked.IsZero() && now.Sub(asked) > time.Second {
			t.Late++
		}
		t.count(e, r, cm)
		t.hand(r, id)
		return Redeliver
	case ready: // its copy waits for the application
	default:
		t.keep(r, cm.Message)
	}
	return Hold
}

// Next returns the next message that is due and whose copy is here already; the application has it from now on.
func (t *Table) Next() (pulsar.ConsumerMessage, bool) {
	for len(t.ready) > 0 {
		key := t.ready[0]
		t.ready = t.ready[1:]
		e, r := t.find(key)
		if r == nil || r.state != ready {
			continue
		}
		msg := r.copy
		t.drop(r)
		t.count(e, r, msg)
		newest := r.newest
		t.hand(r, msg.ID())
		r.newest = newest
		return pulsar.ConsumerMessage{Consumer: e.stream.consumer, Message: msg}, true
	}
	t.ready = nil
	return pulsar.ConsumerMessage{}, false
}

// HasNext reports whether Next may have a message.
func (t *Table) HasNext() bool { return len(t.ready) > 0 }

// Count returns the redelivery count of an unsettled message: how often the application had it before.
func (t *Table) Count(id pulsar.MessageID) (count uint32, ok bool) {
	_, r := t.find(KeyOf(id))
	if r == nil || r.state == acked {
		return 0, false
	}
	return r.count, true
}

// Await notes that the application took a message and until when it may have it: Due is to be called then. Await reports
// false if the application no longer has this delivery of it.
func (t *Table) Await(id pulsar.MessageID, until time.Time) bool {
	_, r := t.find(KeyOf(id))
	if r == nil || r.state != held || r.isStale(id) {
		return false
	}
	r.until = until
	return true
}

// Nack moves a message from the application to those that wait until their delay is over, which its owner then measures:
// it calls Due lead before that, and the table asks so much ahead and holds what comes. Nack reports false where the nack
// changes nothing: a second one, one after the message was settled or timed out, or one that names an earlier delivery
// than the application's newest.
func (t *Table) Nack(id pulsar.MessageID, until time.Time, lead time.Duration) bool {
	e, r := t.find(KeyOf(id))
	if r == nil || r.state != held || r.isStale(id) {
		return false
	}
	t.move(r, waiting)
	e.redelivered = true
	r.until, r.lead = until, lead
	return true
}

// Carry adds what was counted before the message was published anew.
func (t *Table) Carry(id pulsar.MessageID, count uint32) {
	if _, r := t.find(KeyOf(id)); r != nil && r.count <= math.MaxUint32-count {
		r.count += count
	}
}

// Postpone holds back a message that Arrive said to deliver, since it came before its time; Due is to be called then.
func (t *Table) Postpone(msg pulsar.Message, until time.Time) {
	e, r := t.find(KeyOf(msg.ID()))
	if r == nil || r.state != held {
		return
	}
	t.move(r, waiting)
	e.redelivered = true
	r.first, r.until, r.lead = true, until, 0
	t.keep(r, msg)
}

// Adopt enters a message that the application has although the table did not see it delivered, unless it is known.
func (t *Table) Adopt(id pulsar.MessageID, topic string, consumer pulsar.Consumer, count uint32) {
	key := KeyOf(id)
	if _, r := t.find(key); r != nil {
		return
	}
	e := t.entries[key.entryID()]
	if e == nil {
		e = t.add(key.entryID(), t.stream(topic, consumer))
		e.run.begun, e.run.over = true, true
	}
	e.grow(key.Index, id.BatchSize())
	r := e.record(key.Index)
	e.seen++
	e.stream.unsettled++
	r.count = count
	t.hand(r, id)
}

// Action says what to do about a message whose time has come.
type Action struct {
	Ask   pulsar.Consumer  // if not nil, ask this consumer to redeliver
	ID    pulsar.MessageID // this message
	Again time.Duration    // if not 0, call Due again after it
}

// Due tells that a message's delay, its ack timeout or the time that an earlier Action named is over. Due for a time that
// is not the message's present one, since the message moved on meanwhile, does nothing.
func (t *Table) Due(key Key, now time.Time) Action {
	e, r := t.find(key)
	if r == nil || r.state != acked && (r.until.IsZero() || now.Before(r.until.Add(-r.lead))) {
		return Action{}
	}
	switch r.state {
	case held, waiting:
		e.redelivered = true
		if lead := r.lead; lead > 0 {
			r.lead = 0
			var a Action
			if r.copy == nil {
				a = t.ask(key, e, r, now)
			}
			a.Again = lead
			return a
		}
		if r.copy != nil {
			t.move(r, ready)
			t.ready = append(t.ready, key)
			return Action{}
		}
		t.move(r, due)
		return t.ask(key, e, r, now)
	case due:
		tries := uint8(triesShared)
		if t.rewinds {
			tries = triesRewinds
		}
		if r.tries++; r.tries > tries {
			t.forget(e, r)
			return Action{}
		}
		return t.ask(key, e, r, now)
	case settling:
		r.overdue = true
	case acked:
		if e.extended {
			e.extended = false
			return Action{Again: Remember}
		}
		if e.remembered = false; e.acked == e.seen {
			t.release(e)
		}
	}
	return Action{}
}

// ask requests a message, unless it is on its way.
func (t *Table) ask(key Key, e *entry, r *record, now time.Time) Action {
	run := t.run(e)
	a := Action{Again: t.requestTimeout}
	if wait := t.requestTimeout - now.Sub(run.asked); !run.asked.IsZero() && wait > 0 {
		a.Again = wait
	} else if r.tries > 0 || !run.willReach(key) {
		run.asked = now
		a.Ask, a.ID = e.stream.consumer, r.newest
	}
	if r.state == due {
		r.until = now.Add(a.Again)
	}
	return a
}

// Settling is a message on its way to being acknowledged, or published elsewhere and then acknowledged.
type Settling struct {
	Key      Key
	Consumer pulsar.Consumer
	ID       pulsar.MessageID // of the newest delivery: what to acknowledge
	Held     bool             // the application had it, so that its ack timeout was measured
}

// Settle begins to settle a message; Settled must follow. It is final unless Settled reports an error: meanwhile the
// message is not handed out. ok is false for a message that is unknown, settled or being settled.
func (t *Table) Settle(id pulsar.MessageID) (s Settling, ok bool) {
	key := KeyOf(id)
	e, r := t.find(key)
	if r == nil || r.state == settling || r.state == acked {
		return Settling{}, false
	}
	r.before = r.state
	t.move(r, settling)
	return Settling{key, e.stream.consumer, r.newest, r.before == held}, true
}

// Knows reports whether the message is in the table, settled ones that are remembered included.
func (t *Table) Knows(id pulsar.MessageID) bool {
	_, r := t.find(KeyOf(id))
	return r != nil
}

// Outcome is what remains to be done after settling.
type Outcome struct {
	Again pulsar.MessageID // if not nil, a newer delivery came meanwhile: acknowledge this as well
	Due   bool             // settling failed and the message was due meanwhile: call Due now
}

// Settled ends what Settle began. After an error the message is where it was before.
func (t *Table) Settled(s Settling, err error) (o Outcome) {
	e, r := t.find(s.Key)
	if r == nil || r.state != settling {
		return Outcome{}
	}
	if err != nil {
		t.move(r, r.before)
		if r.state == ready {
			t.ready = append(t.ready, s.Key)
		}
		o.Due, r.overdue = r.overdue, false
		return o
	}
	if r.newest != s.ID {
		o.Again = r.newest
	}
	t.settleRecord(e, r)
	return o
}

// SettleTo settles all messages of id's partition up to and including id, for a cumulative acknowledgement that succeeded.
// It returns their keys.
func (t *Table) SettleTo(id pulsar.MessageID) (settled []Key) {
	to := KeyOf(id)
	e := t.entries[to.entryID()]
	if e == nil {
		return nil // an id that was settled before, or never seen
	}
	for _, other := range t.entries {
		if other.stream != e.stream {
			continue
		}
		for i := range other.size() {
			key, r := other.id.key(i), other.record(i)
			if to.before(key) || r.state == unseen || r.state == acked {
				continue
			}
			t.settleRecord(other, r)
			settled = append(settled, key)
		}
	}
	return settled
}

// Newest returns what to acknowledge the message of id with, and at which consumer; nil if it is unknown.
func (t *Table) Newest(id pulsar.MessageID) (pulsar.Consumer, pulsar.MessageID) {
	if e, r := t.find(KeyOf(id)); r != nil {
		return e.stream.consumer, r.newest
	}
	return nil, id
}

// Clear forgets everything, as after a seek.
func (t *Table) Clear() {
	clear(t.entries)
	clear(t.streams)
	t.latest, t.ready, t.Forget, t.heldBytes = nil, nil, nil, 0
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
func (t *Table) Len() int { return len(t.entries) }

// HeldBytes returns the size of the early copies that are held back.
func (t *Table) HeldBytes() int64 { return t.heldBytes }
