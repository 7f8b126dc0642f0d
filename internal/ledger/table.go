package ledger

import (
	"math"
	"reflect"
	"slices"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/slotmap"
)

// table is what a Ledger knows of entries and messages. It takes no lock, reads no clock and calls nobody.
type table struct {
	o       *Options
	entries *slotmap.Map[entryID, entry]
	streams map[string]*stream
	latest  *stream // the stream of the last arrival, usually that of the next
	ledgers map[int64]*stream
	shared  bool // several topics have a ledger, as a shadow topic and its source have
	ready   []Ref
	states  [acked + 1]int // how many messages are in each
	shelf   shelf

	// What few messages have at a time:
	newer map[Ref]pulsar.MessageID   // deliveries of what the application has of an older one
	older map[Ref][]pulsar.MessageID // earlier deliveries, where topics share ledgers
	asked map[uint32]request         // the last request for an entry, as long as its answer may come

	times map[Ref]timing // of what is not settled; nil if nobody observes
}

func newTable(o *Options) table {
	t := table{
		o:       o,
		entries: slotmap.New[entryID, entry](func(id entryID) uint32 { return slotmap.HashUint64(uint64(id.ledger)<<32 + uint64(id.entry)) }),
		streams: map[string]*stream{},
		ledgers: map[int64]*stream{},
		shelf:   shelf{limit: o.HoldLimit, messages: map[Ref]kept{}},
		newer:   map[Ref]pulsar.MessageID{},
		older:   map[Ref][]pulsar.MessageID{},
		asked:   map[uint32]request{},
	}
	if o.Observed {
		t.times = map[Ref]timing{}
	}
	return t
}

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
	held           // the application has it
	waiting        // for its delay
	due            // the broker is to send it, or is sending it
	ready          // due and here; the application has not taken it yet
	settling       // being acknowledged
	acked          // settled, remembered for the sake of its siblings or of copies
)

type flags uint8

const (
	timed     flags = 1 << iota // held: its ack timeout runs
	overdue                     // settling: its time came meanwhile
	postponed                   // its next hand-over is not counted: the application has not had it yet
	ahead                       // waiting: it is to be asked for before its time
	doubtful                    // it may be settled or another consumer's: only the broker can say
	logged                      // of an entry: it is in its stream's log
	repeated                    // of an entry: it was delivered more than once
)

func (f flags) has(flag flags) bool { return f&flag != 0 }

// record is what is kept for each message.
type record struct {
	id     pulsar.MessageID // of the delivery that the application has; if it has none, of the newest
	count  uint32
	state  state
	before state // settling: where an error leads back to
	hand   uint8 // which hand-over this is, from 0; it wraps
	flags  flags
}

// isStale reports whether id is of an earlier delivery than the one that the application has. Upstream's ids are the same
// object as long as the delivery is the same; those rebuilt from bytes do not tell.
func (r *record) isStale(id pulsar.MessageID) bool {
	return r.id != id && reflect.TypeOf(r.id) == reflect.TypeOf(id)
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
	last        int32  // index of the last arrival
	kept        int32  // messages of it on the shelf
	base        uint32 // the broker's count when it was first seen: later ones have the siblings' attempts in them
	settled     uint64 // the settling of a sibling, as the stream counts them
	size        int64  // of the buffer that its payloads are slices of
}

func (e *entry) stream() *stream { return e.batch.stream }
func (e *entry) isBatch() bool   { return e.batch.records != nil }
func (e *entry) size() int32     { return max(1, int32(len(e.batch.records))) }

func (e *entry) at(index int32) *record {
	if e.isBatch() {
		return &e.batch.records[index]
	}
	return &e.record
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

// Name is what a caller knows of a message: the id, with Topic and Hand where there is the message.
type Name struct {
	ID      pulsar.MessageID
	Topic   string
	Hand    uint8
	HasHand bool
}

// find finds a message. Where topics share ledgers an id alone names the message that was delivered with it.
func (t *table) find(n Name) (Ref, *entry, *record) {
	index := indexOf(n.ID)
	slot, ok := t.entries.Find(entryOf(n.ID))
	if !ok {
		return 0, nil, nil
	}
	for ; ok; slot, ok = t.entries.Another(slot) {
		ref, e := refOf(slot, index), &t.entries.At(slot).Value
		switch {
		case n.Topic == "" && !t.shared:
		case n.Topic == "" && index < e.size() && (e.at(index).id == n.ID || t.newer[ref] == n.ID || slices.Contains(t.older[ref], n.ID)):
		case n.Topic != "" && n.Topic == e.stream().topic:
		default:
			continue
		}
		e, r := t.at(ref)
		return ref, e, r
	}
	return 0, nil, nil
}

// at returns the message of ref, or nil if there is none any more.
func (t *table) at(ref Ref) (*entry, *record) {
	item := t.entries.At(ref.slot())
	if item == nil || ref.index() >= item.Value.size() {
		return nil, nil
	}
	if r := item.Value.at(ref.index()); r.state != unseen {
		return &item.Value, r
	}
	return nil, nil
}

// add returns the entry of an id, which has room for its batch.
func (t *table) add(id pulsar.MessageID, s *stream) (Ref, *entry) {
	key, index := entryOf(id), indexOf(id)
	slot, ok := t.entryAt(key, s)
	if !ok {
		if s.ledger != key.ledger {
			t.share(s, key.ledger)
		}
		slot = t.entries.Add(key)
		t.entries.At(slot).Value = entry{batch: &s.single, prev: none, next: none}
	}
	e := &t.entries.At(slot).Value
	e.grow(index, id.BatchSize())
	return refOf(slot, index), e
}

// entryAt returns the slot of a stream's entry.
func (t *table) entryAt(id entryID, s *stream) (slot uint32, ok bool) {
	slot, ok = t.entries.Find(id)
	for ok && t.entries.At(slot).Value.stream() != s {
		slot, ok = t.entries.Another(slot)
	}
	return slot, ok
}

// share notes that a stream has come to another of its topic's ledgers.
func (t *table) share(s *stream, ledger int64) {
	s.ledger = ledger
	if other := t.ledgers[ledger]; other != nil && other != s {
		t.shared = true
	}
	if len(t.ledgers) > 1000 {
		clear(t.ledgers)
	}
	t.ledgers[ledger] = s
}

// enter hands out a message that was not seen before.
func (t *table) enter(ref Ref, e *entry, id pulsar.MessageID, count uint32) *record {
	s := e.stream()
	if !e.isBatch() || e.isSettled() {
		t.link(s, ref.slot(), e)
	}
	if e.isBatch() {
		e.batch.seen++
	}
	s.unsettled++
	r := e.at(ref.index())
	*r = record{count: count, flags: r.flags & (logged | repeated)}
	t.hand(ref, r, id)
	return r
}

func (t *table) move(ref Ref, r *record, to state) {
	if r.state != unseen {
		t.states[r.state]--
	}
	t.states[to]++
	r.state = to
	if to != held && to != settling && len(t.newer) > 0 {
		t.name(ref, r, t.newest(ref, r))
		delete(t.newer, ref)
	}
}

// hand gives a message to the application.
func (t *table) hand(ref Ref, r *record, id pulsar.MessageID) {
	t.name(ref, r, id)
	r.flags &^= timed | doubtful
	t.move(ref, r, held)
}

// name notes by which delivery a message is known.
func (t *table) name(ref Ref, r *record, id pulsar.MessageID) {
	if t.shared && r.id != nil && r.id != id {
		t.older[ref] = append(t.older[ref], r.id)
	}
	r.id = id
}

// newest returns the id of the newest delivery.
func (t *table) newest(ref Ref, r *record) pulsar.MessageID {
	if len(t.newer) > 0 {
		if id := t.newer[ref]; id != nil {
			return id
		}
	}
	return r.id
}

// again counts one more hand-over of a message. In a batch the broker counts the entry, so siblings would burn each
// other's attempts; there the own count is the truth.
func (t *table) again(e *entry, r *record, msg pulsar.Message) {
	r.hand++
	if r.flags.has(postponed) {
		r.flags &^= postponed
	} else if r.count < math.MaxUint32 {
		r.count++
	}
	if !e.isBatch() {
		r.count = max(r.count, msg.RedeliveryCount())
	}
}

// forget lets go of a message that is somebody else's now: another consumer's, a transaction's, the broker's.
func (t *table) forget(ref Ref, e *entry, r *record) {
	delete(t.times, ref)
	t.drop(ref, e)
	delete(t.newer, ref)
	t.states[r.state]--
	s := e.stream()
	s.unsettled--
	if !e.isBatch() {
		t.unlink(s, e)
		t.release(ref.slot(), e)
		return
	}
	*r = record{}
	switch e.batch.seen--; {
	case e.batch.seen == 0:
		t.unlink(s, e)
		t.release(ref.slot(), e)
	case e.isSettled():
		t.unlink(s, e)
		t.settleEntry(ref.slot(), e)
	}
}

// release lets go of an entry that has nothing unsettled.
func (t *table) release(slot uint32, e *entry) {
	s := e.stream()
	if e.flags.has(logged) {
		s.log.strike(slot)
	}
	switch {
	case e.isBatch():
		t.states[acked] -= int(e.batch.acked)
	case e.state == acked:
		t.states[acked]--
	}
	delete(t.asked, slot)
	for i := range e.size() {
		if len(t.older) == 0 {
			break
		}
		delete(t.older, refOf(slot, i))
	}
	s.leave(slot)
	t.entries.Remove(slot)
}
