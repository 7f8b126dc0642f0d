package ledger

import (
	"iter"
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/slotmap"
)

// table is what a Ledger knows of entries and messages. It takes no lock, reads no clock and calls nobody.
type table struct {
	o       *Options
	entries *slotmap.Map[entryID, entry]
	streams map[string]*stream
	numbers uint32  // of streams that there were
	latest  *stream // the stream of the last arrival, usually that of the next
	arrived uint32  // the slot of that arrival, often what is looked for next
	ledgers map[int64]*stream
	shared  bool // several topics have a ledger, as a shadow topic and its source have
	ready   []Ref
	offered bool           // the first of these was, and not taken
	states  [acked + 1]int // how many messages are in each
	memory  memory
	pages   []*page // of all streams, the oldest first

	lost, away bool // a connection was lost: what comes of a new stream was prefetched before; and there is none again
	// What few messages have at a time:
	newer  map[Ref]pulsar.MessageID   // the newest delivery, where that is not what the record has
	older  map[Ref][]pulsar.MessageID // earlier deliveries, where topics share ledgers
	asked  map[uint32]request         // the last request for an entry, as long as its answer may come
	failed map[Ref]time.Duration      // when the application failed on it first, by Ledger.Now; where keys wait for that

	times []timing // by slot, where somebody observes; those of batches are theirs
}

func newTable(o *Options) table {
	return table{
		o:       o,
		entries: slotmap.New[entryID, entry](func(id entryID) uint32 { return slotmap.HashUint64(uint64(id.ledger)<<32 + uint64(id.entry)) }),
		streams: map[string]*stream{},
		ledgers: map[int64]*stream{},
		memory:  memory{limit: o.MemoryLimit},
		newer:   map[Ref]pulsar.MessageID{},
		older:   map[Ref][]pulsar.MessageID{},
		asked:   map[uint32]request{},
		failed:  map[Ref]time.Duration{},
	}
}

// Name is what a caller knows of a message: the id, with Topic and Hand where there is the message.
type Name struct {
	ID      pulsar.MessageID
	Topic   string
	Hand    uint8
	HasHand bool   // the hand-over is known
	Count   uint32 // the hand-over's, as hand-overs wrap
	Own     bool   // the message is as it was handed over, with this count
}

// find finds a message. Where topics share ledgers an id alone names the message that was delivered with it.
func (t *table) find(n Name) (Ref, *entry, *record) {
	index, key := indexOf(n.ID), entryOf(n.ID)
	slot, ok := t.arrived, true
	if item := t.entries.At(slot); t.shared || item == nil || item.Key != key || n.Topic != "" && n.Topic != item.Value.stream().topic {
		slot, ok = t.entries.Find(key)
	}
	if !ok {
		return 0, nil, nil
	}
	for ; ok; slot, ok = t.entries.Another(slot) {
		ref, e := refOf(slot, index), &t.entries.At(slot).Value
		switch {
		case n.Topic == "" && !t.shared:
		case n.Topic == "" && index < e.size() && (e.at(index).id() == n.ID || t.newer[ref] == n.ID || slices.Contains(t.older[ref], n.ID)):
		case n.Topic != "" && n.Topic == e.stream().topic:
		default:
			continue
		}
		return ref, e, e.seen(index)
	}
	return 0, nil, nil
}

// streamOf returns the partition that a message is of, or nil if that is not known: where topics share ledgers an id alone may be any topic's.
func (t *table) streamOf(n Name) *stream {
	_, e, _ := t.find(n)
	switch s := t.ledgers[n.ID.LedgerID()]; {
	case e != nil:
		return e.stream()
	case n.Topic != "" || t.shared:
		return t.streams[n.Topic]
	case s != nil:
		return s
	}
	for _, s := range t.streams {
		if s.stage(entryOf(n.ID)) > unacked || t.o.OneTopic && len(t.streams) == 1 && s.partition == max(0, n.ID.PartitionIdx()) {
			return s
		}
	}
	return nil
}

// at returns the message of ref, or nil if there is none any more.
func (t *table) at(ref Ref) (*entry, *record) {
	if item := t.entries.At(ref.slot()); item != nil {
		return &item.Value, item.Value.seen(ref.index())
	}
	return nil, nil
}

// add returns the entry of an id, which has room for its batch.
func (t *table) add(id pulsar.MessageID, key entryID, s *stream) (Ref, *entry) {
	index, slot, ok := indexOf(id), uint32(0), false
	if s.newest.before(key) {
		s.newest = key
	} else if t.isArriving(s, key) {
		slot, ok = s.current, true
	} else if slot, ok = t.entryAt(key, s); ok {
		s.past.notPart(slot)
	}
	if !ok {
		if s.ledger != key.ledger {
			s.partition = max(0, id.PartitionIdx())
			t.share(s, key.ledger)
		}
		slot = t.entries.Add(key)
		e := &t.entries.At(slot).Value
		e.batch, e.prev, e.next = &s.single, none, none
	}
	e := &t.entries.At(slot).Value
	e.grow(index, id.BatchSize())
	return refOf(slot, index), e
}

// all are the entries of which something is not settled, or may come still, in no order.
func (t *table) all() iter.Seq2[uint32, *entry] {
	return func(yield func(uint32, *entry) bool) {
		for slot, left := uint32(0), t.entries.Len(); left > 0; slot++ {
			if item := t.entries.At(slot); item != nil {
				if left--; !yield(slot, &item.Value) {
					return
				}
			}
		}
	}
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
	if other := t.ledgers[ledger]; other != nil && other != s && other.topic != "" {
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
	if len(t.asked) > 0 {
		delete(t.asked, ref.slot()) // of a message that was given up waiting for
	}
	r := e.at(ref.index())
	if r.flags.has(undecided) {
		e.batch.undecided--
	}
	r.count, r.flags, r.of = count, r.flags&ofEntry, id
	t.hand(r)
	return r
}

func (t *table) move(r *record, to state) {
	if r.state != unseen {
		t.states[r.state]--
	}
	t.states[to]++
	r.state = to
}

// hand gives a message to the application.
func (t *table) hand(r *record) {
	r.flags &^= timed | doubtful
	t.move(r, inFlight)
}

// name notes the delivery by which a message is known that is not kept.
func (t *table) name(ref Ref, r *record, id pulsar.MessageID) {
	if old := r.id(); t.shared && old != nil && old != id {
		t.older[ref] = append(t.older[ref], old)
	}
	r.of = id
	delete(t.newer, ref)
}

// newest returns the id of the newest delivery.
func (t *table) newest(ref Ref, r *record) pulsar.MessageID {
	if len(t.newer) > 0 {
		if id := t.newer[ref]; id != nil {
			return id
		}
	}
	return r.id()
}

// again counts one more hand-over of a message. In a batch the broker counts the entry, so siblings would burn each
// other's attempts; there the own count is the truth.
func (t *table) again(e *entry, r *record, count uint32) {
	if r.flags.has(uncounted) {
		r.flags &^= uncounted
	} else {
		r.hand++
		r.count += min(1, ^r.count)
	}
	if !e.isBatch() {
		r.count = max(r.count, count)
	}
}

// forget lets go of a message that is somebody else's now: another consumer's, a transaction's, the broker's.
func (t *table) forget(ref Ref, e *entry, r *record) {
	t.leave(ref, e, r)
	t.states[r.state]--
	s := e.stream()
	s.unsettled--
	if e.isBatch() {
		*r = record{}
		e.batch.seen--
	}
	switch {
	case !e.isBatch() || e.batch.seen == 0:
		t.unlink(s, e)
		t.release(ref.slot(), e)
	case e.isSettled():
		t.unlink(s, e)
		t.settleEntry(ref.slot(), e)
	}
}

// leave lets go of what there is of a message only until it is settled.
func (t *table) leave(ref Ref, e *entry, r *record) {
	if x := t.timing(ref, e); x != nil {
		*x = timing{}
	}
	t.drop(e, r)
	if len(t.newer) > 0 && t.newer[ref] != nil {
		t.name(ref, r, t.newer[ref])
	}
	if len(t.failed) > 0 {
		delete(t.failed, ref)
	}
}

// release lets go of an entry that has nothing unsettled.
func (t *table) release(slot uint32, e *entry) {
	s := e.stream()
	switch {
	case e.isBatch():
		t.states[acked] -= int(e.batch.acked)
	case e.state == acked:
		t.states[acked]--
	}
	delete(t.asked, slot)
	if int(slot) < len(t.times) {
		t.times[slot] = timing{}
	}
	if len(t.older) > 0 {
		for i := range e.size() {
			delete(t.older, refOf(slot, i))
		}
	}
	if s.current == slot {
		s.current = none
	}
	t.entries.Remove(slot)
}
