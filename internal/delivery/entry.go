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

// Ref names a message that a Table knows, until the Table lets go of it. It is the smaller and faster Key.
type Ref struct {
	slot  uint32 // of the entry
	index int32
}

const none = math.MaxUint32 // no slot

// stream is a partition as one consumer sees it.
type stream struct {
	topic     string
	consumer  pulsar.Consumer
	current   uint32 // the entry whose messages are arriving, or none
	single    batch  // what entries have that are no batch
	unsettled int    // messages

	// Where the broker rewinds:
	run   run
	asked time.Time // of the request under way, if there is one
	spans []span    // settled of late, the oldest first
}

// leave notes that no more of an entry is about to arrive.
func (s *stream) leave(slot uint32) {
	if s.current == slot {
		s.current = none
	}
}

// run is one passage of deliveries: over an entry, or over a partition where the broker rewinds. Deliveries come in order,
// so one that is not after the last begins a new run.
type run struct {
	last  Key
	begun bool
	over  bool
}

// endless is the batch size of a run that no index ends.
const endless = 0

// arrive notes a delivery and reports whether it begins another run.
func (r *run) arrive(key Key, size int32) (another bool) {
	another = r.begun && (r.over || !r.last.before(key))
	r.last, r.begun, r.over = key, true, key.Index == size-1
	return another
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

type flags uint8

const (
	measured  flags = 1 << iota // a time is measured for the message: Due is to be called
	overdue                     // settling: its time came meanwhile
	postponed                   // the application has not had it yet
	asksAhead                   // waiting: it is to be asked for before its time

	// Those of an entry:
	redelivered // a message of it was nacked or asked for, or came more than once
	remembered  // it is in Table.Forget, or was
	extended    // more was settled since: it is to be remembered for another while
)

func (f flags) has(flag flags) bool { return f&flag != 0 }

// record is what is kept for each message. What few messages have at a time is in the Table's maps.
type record struct {
	id     pulsar.MessageID // of the delivery that the application has; if it has none, of the newest
	count  uint32
	state  state
	before state // settling: where an error leads back to
	tries  uint8
	flags  flags
}

// isStale reports whether id is of an earlier delivery than the one that the application has. Upstream's ids are the same
// object as long as the delivery is the same; those rebuilt from bytes do not tell.
func (r *record) isStale(id pulsar.MessageID) bool {
	return r.id != id && reflect.TypeOf(r.id) == reflect.TypeOf(id)
}

// entry is what the broker redelivers.
type entry struct {
	record // of the message, if the entry is no batch; its flags are the entry's as well
	batch  *batch
}

// batch is what an entry has beside its messages. Those that are no batch share their stream's, which has no records.
type batch struct {
	stream      *stream
	records     []record
	run         run
	seen, acked int32
	base        uint32 // the broker's count when it was first seen: later ones have the siblings' attempts in them
}

func (e *entry) isBatch() bool { return e.batch.records != nil }

func (e *entry) size() int32 { return max(1, int32(len(e.batch.records))) }

func (e *entry) at(index int32) *record {
	if e.isBatch() {
		return &e.batch.records[index]
	}
	return &e.record
}

// acked returns how many of its messages are settled.
func (e *entry) acked() int32 {
	if e.isBatch() {
		return e.batch.acked
	}
	if e.state == acked {
		return 1
	}
	return 0
}

func (e *entry) isSettled() bool {
	if e.isBatch() {
		return e.batch.acked == e.batch.seen
	}
	return e.state == acked
}

// grow makes room for a batch of size, and at least for index.
func (e *entry) grow(index, size int32) {
	size = max(size, index+1)
	if size <= e.size() {
		return
	}
	records := make([]record, size)
	if e.isBatch() {
		copy(records, e.batch.records)
		e.batch.records = records
		return
	}
	b := &batch{stream: e.batch.stream, records: records}
	if e.state != unseen {
		b.seen, b.acked, b.base = 1, e.acked(), e.count
		b.run = run{begun: true, over: true}
	}
	records[0] = e.record
	e.record, e.batch = record{flags: e.flags}, b
}
