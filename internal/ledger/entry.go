package ledger

import (
	"math"
	"reflect"

	"github.com/apache/pulsar-client-go/pulsar"
)

// entryID names an entry of a topic. Shadow topics have the ids of their source.
type entryID struct{ ledger, entry int64 }

func entryOf(id pulsar.MessageID) entryID { return entryID{id.LedgerID(), id.EntryID()} }

// indexOf returns the place in the batch. Chunked and unbatched messages have index 0.
func indexOf(id pulsar.MessageID) int32 { return max(0, id.BatchIdx()) }

func (id entryID) before(other entryID) bool {
	return id.ledger < other.ledger || id.ledger == other.ledger && id.entry < other.entry
}

// Ref names a message until the Ledger lets go of it: the slot of its entry, and its index.
type Ref uint64

func refOf(slot uint32, index int32) Ref { return Ref(slot)<<32 | Ref(index) }
func (r Ref) slot() uint32               { return uint32(r >> 32) }
func (r Ref) index() int32               { return int32(uint32(r)) }

const none = math.MaxUint32 // no slot

type state uint8

const (
	unseen   state = iota
	inFlight       // the application has it
	waiting        // for its delay
	due            // the broker is to send it, or is sending it
	ready          // due and here; the application has not taken it yet
	acked          // settled, known for the sake of its siblings
)

type flags uint8

const (
	timed     flags = 1 << iota // in flight: its ack timeout runs
	busy                        // it is being acknowledged, or published elsewhere: not handed out meanwhile
	uncounted                   // its next hand-over is not counted: the application has not had it yet
	leaving                     // it is kept until it is published elsewhere
	doubtful                    // it may be settled or another consumer's: only the broker can say
	adopted                     // of an entry: no delivery has said how many messages it has
	ackWhole                    // of an entry: it was delivered more than once, or an acknowledgement failed or was left to the last one
	undecided                   // forgotten, since a transaction acknowledged it: for upstream that counts
)

// ofEntry are the flags of an entry, which stay when its one message is settled or begins again.
const ofEntry = adopted | ackWhole

func (f flags) has(flag flags) bool { return f&flag != 0 }

// record is what is kept for each message.
type record struct {
	of    any // the message if it is kept, else its id: of the delivery that the application has; if it has none, of the newest
	count uint32
	state state
	hand  uint8     // which hand-over this is, from 0; it wraps
	size  sizeClass // of the message; 0 if it is not kept
	flags flags
}

func (r *record) id() pulsar.MessageID {
	if msg, ok := r.of.(pulsar.Message); ok {
		return msg.ID()
	}
	id, _ := r.of.(pulsar.MessageID)
	return id
}

// msg returns the message, or nil if it is not kept.
func (r *record) msg() pulsar.Message {
	msg, _ := r.of.(pulsar.Message)
	return msg
}

func (r *record) isKept() bool { return r.size > 0 }

// isStale reports whether id is of an earlier delivery than the one that the application has. Upstream's ids are the same
// object as long as the delivery is the same; those rebuilt from bytes do not tell.
func (r *record) isStale(id pulsar.MessageID) bool {
	own := r.id()
	return own != id && reflect.TypeOf(own) == reflect.TypeOf(id)
}

// entry is what the broker redelivers.
type entry struct {
	record     // of the message, if the entry is no batch; its flags are the entry's as well
	batch      *batch
	prev, next uint32 // in the list of its stream's unsettled entries
}

// batch is what an entry has beside its messages. Those that are no batch share their stream's, which has no records.
type batch struct {
	stream      *stream
	records     []record
	seen, acked int32
	undecided   int32  // forgotten messages that upstream counts as acknowledged
	total       int32  // messages; 0 if no delivery has said so, which an id made of numbers does not
	last        int32  // index of the last arrival
	kept        int32  // messages of it that are kept
	base        uint32 // the broker's count when it was first seen: later ones have the siblings' attempts in them
	settled     uint64 // how many rounds had passed when a sibling was settled
	size        int64  // of the buffer that its payloads are slices of
	times       []timing
}

// settledForUpstream returns how many messages of a batch upstream counts as acknowledged, or would if it had been told.
func (b *batch) settledForUpstream() int32 { return b.acked + b.undecided }

func (e *entry) stream() *stream { return e.batch.stream }
func (e *entry) isBatch() bool   { return e.batch.records != nil }
func (e *entry) size() int32     { return max(1, int32(len(e.batch.records))) }

func (e *entry) at(index int32) *record {
	if e.isBatch() {
		return &e.batch.records[index]
	}
	return &e.record
}

// seen returns the message of an index, or nil if none was seen.
func (e *entry) seen(index int32) *record {
	if index < e.size() {
		if r := e.at(index); r.state != unseen {
			return r
		}
	}
	return nil
}

func (e *entry) isSettled() bool {
	if e.isBatch() {
		return e.batch.acked == e.batch.seen
	}
	return e.state == acked
}

// isWhole reports whether nothing more of a settled entry can come than copies.
func (e *entry) isWhole() bool {
	if e.isBatch() {
		return e.batch.total > 0 && e.batch.acked >= e.batch.total
	}
	return !e.flags.has(adopted)
}

// grow makes room for a batch of size, and at least for index.
func (e *entry) grow(index, size int32) {
	if n := max(size, index+1); n > e.size() {
		e.resize(n)
	}
	if size > 1 {
		e.batch.total = size
	}
}

func (e *entry) resize(size int32) {
	records := make([]record, size)
	if e.isBatch() {
		copy(records, e.batch.records)
		e.batch.records = records
		return
	}
	b := &batch{stream: e.batch.stream, records: records, last: -1}
	if e.state != unseen {
		b.seen, b.base = 1, e.count
		if e.state == acked {
			b.acked = 1
		}
	}
	records[0] = e.record
	e.record, e.batch = record{flags: e.flags}, b
}
