package delivery

import (
	"math"
	"reflect"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Key names a message: its entry, which is what the broker redelivers, and its place in the entry's batch. Ledger ids are
// unique in a cluster, so it needs no topic.
type Key struct {
	Ledger, Entry int64
	Index         int32
}

// KeyOf returns the key of a message id. Chunked and unbatched messages have index 0.
func KeyOf(id pulsar.MessageID) Key { return Key{id.LedgerID(), id.EntryID(), max(0, id.BatchIdx())} }

func (k Key) entryID() entryID { return entryID{k.Ledger, k.Entry} }

func (k Key) before(other Key) bool {
	if k.Ledger != other.Ledger {
		return k.Ledger < other.Ledger
	}
	if k.Entry != other.Entry {
		return k.Entry < other.Entry
	}
	return k.Index < other.Index
}

type entryID struct{ ledger, entry int64 }

func (id entryID) key(index int32) Key { return Key{id.ledger, id.entry, index} }

// stream is a partition as one consumer sees it.
type stream struct {
	topic     string
	consumer  pulsar.Consumer
	current   *entry // whose messages are arriving
	run       run    // where the broker rewinds
	unsettled int    // messages
}

// run is one passage of deliveries: over an entry, or over a partition where the broker rewinds. Deliveries come in order,
// so one that is not after the last begins a new run.
type run struct {
	last  Key
	begun bool
	over  bool
	asked time.Time // of the request under way, if there is one
}

// endless is the batch size of a run that no index ends.
const endless = 0

// arrive notes a delivery. If it answers a request, arrive returns when that was made.
func (r *run) arrive(key Key, size int32) (asked time.Time) {
	if r.begun && (r.over || !r.last.before(key)) {
		asked, r.asked = r.asked, time.Time{}
	}
	r.last, r.begun, r.over = key, true, key.Index == size-1
	return asked
}

// willReach reports whether the run in progress is yet to deliver key.
func (r *run) willReach(key Key) bool { return r.begun && !r.over && r.last.before(key) }

type state uint8

const (
	unseen   state = iota
	held           // the application has it
	waiting        // for its delay
	due            // due; the broker is to send it, or is sending it
	ready          // due, and a copy is here; the application has not taken it yet
	settling       // being acknowledged
	acked          // settled, remembered for the sake of its siblings or of late copies
)

type record struct {
	handed  pulsar.MessageID // of the delivery that the application has or had
	newest  pulsar.MessageID // of the newest delivery
	copy    pulsar.Message   // held back
	lead    time.Duration    // waiting: how long before its time it is asked for
	until   time.Time        // when the time that is measured for it is over; zero if none is
	count   uint32
	tries   uint8
	state   state
	before  state // settling: where an error leads back to
	overdue bool  // settling: its time came meanwhile
	first   bool  // the application has not had it yet: it was postponed
}

// isStale reports whether id is of an earlier delivery than the application's newest. Upstream's ids are the same object
// as long as the delivery is the same; those rebuilt from bytes do not tell.
func (r *record) isStale(id pulsar.MessageID) bool {
	return r.handed != id && reflect.TypeOf(r.handed) == reflect.TypeOf(id)
}

type entry struct {
	id          entryID
	stream      *stream
	run         run
	one         record   // of an entry that is not a batch
	batch       []record // of one that is
	seen, acked int32
	base        uint32 // the broker's count when it was first seen: later ones have the siblings' attempts in them
	redelivered bool   // a message of it was nacked or asked for, or came more than once
	remembered  bool   // it is in Table.Forget, or was
	extended    bool   // more was settled since: it is to be remembered for another while
}

func (e *entry) size() int32 {
	if e.batch != nil {
		return int32(len(e.batch))
	}
	return 1
}

func (e *entry) record(index int32) *record {
	if e.batch != nil {
		return &e.batch[index]
	}
	return &e.one
}

// anyKey returns the key of a settled message.
func (e *entry) anyKey() Key {
	for i := range e.size() {
		if e.record(i).state == acked {
			return e.id.key(i)
		}
	}
	return e.id.key(0)
}

// grow makes room for a batch of size, and at least for index.
func (e *entry) grow(index, size int32) {
	size = max(size, index+1)
	if size <= e.size() {
		return
	}
	batch := make([]record, size)
	if e.batch == nil {
		batch[0] = e.one
		e.one = record{}
	}
	copy(batch, e.batch)
	e.batch = batch
}

// count notes one more hand-over of a message. In a batch the broker counts the entry, so siblings would burn each other's
// attempts; there the own count is the truth.
func (t *Table) count(e *entry, r *record, msg pulsar.Message) {
	if r.first {
		r.first = false
	} else {
		t.Redelivered++
		if r.count < math.MaxUint32 {
			r.count++
		}
	}
	if e.batch == nil {
		r.count = max(r.count, msg.RedeliveryCount())
	}
}

func (t *Table) stream(topic string, consumer pulsar.Consumer) *stream {
	s := t.latest
	if s == nil || s.topic != topic {
		if s = t.streams[topic]; s == nil {
			s = &stream{topic: topic}
			t.streams[topic] = s
		}
		t.latest = s
	}
	s.consumer = consumer
	return s
}

func (t *Table) run(e *entry) *run {
	if t.rewinds {
		return &e.stream.run
	}
	return &e.run
}

func (t *Table) find(key Key) (*entry, *record) {
	e := t.entries[key.entryID()]
	if e == nil || key.Index >= e.size() {
		return nil, nil
	}
	if r := e.record(key.Index); r.state != unseen {
		return e, r
	}
	return nil, nil
}

func (t *Table) add(id entryID, s *stream) *entry {
	var e *entry
	if n := len(t.spare); n > 0 {
		e, t.spare = t.spare[n-1], t.spare[:n-1]
	} else {
		e = new(entry)
	}
	e.id, e.stream = id, s
	t.entries[id] = e
	return e
}

func (t *Table) move(r *record, to state) {
	if r.state != unseen {
		t.states[r.state]--
	}
	t.states[to]++
	r.state = to
}

func (t *Table) hand(r *record, id pulsar.MessageID) {
	r.handed, r.newest, r.tries, r.until = id, id, 0, time.Time{}
	t.move(r, held)
}

// overhead is what a message weighs beside its payload, roughly.
const overhead = 512

func (t *Table) keep(r *record, msg pulsar.Message) {
	t.drop(r)
	size := int64(len(msg.Payload())) + overhead
	if t.heldBytes+size > t.holdLimit {
		t.Dropped++
		return
	}
	t.Held++
	r.copy = msg
	t.heldBytes += size
}

func (t *Table) drop(r *record) {
	if r.copy != nil {
		t.heldBytes -= int64(len(r.copy.Payload())) + overhead
		r.copy = nil
	}
}

// settleRecord marks a message settled.
func (t *Table) settleRecord(e *entry, r *record) {
	t.drop(r)
	t.move(r, acked)
	r.overdue = false
	e.acked++
	e.stream.unsettled--
	t.settleEntry(e)
}

// settleEntry lets go of an entry that has nothing unsettled and whose run is over. If late copies of it are to be
// expected it is remembered for a while: one that was redelivered, and a batch of which not all messages were seen, since
// the broker may have filtered them, or may be about to send all again.
func (t *Table) settleEntry(e *entry) {
	switch {
	case e.acked < e.seen:
	case e.remembered:
		e.extended = true
	case e.redelivered, e.run.over && e.seen < e.size():
		e.remembered = true
		t.Forget = append(t.Forget, e.anyKey())
	case !e.run.over: // more of the batch is about to arrive
	default:
		t.release(e)
	}
}

// forget lets go of a message that went elsewhere.
func (t *Table) forget(e *entry, r *record) {
	t.drop(r)
	t.states[r.state]--
	*r = record{}
	e.stream.unsettled--
	if e.seen--; e.seen == 0 {
		t.release(e)
		return
	}
	t.settleEntry(e)
}

func (t *Table) release(e *entry) {
	t.states[acked] -= int(e.acked)
	delete(t.entries, e.id)
	if e.stream.current == e {
		e.stream.current = nil
	}
	if e.batch == nil && len(t.spare) < 1024 {
		*e = entry{}
		t.spare = append(t.spare, e)
	}
}
