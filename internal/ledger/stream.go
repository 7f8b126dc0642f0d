package ledger

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// stream is a partition as one consumer sees it.
type stream struct {
	topic     string
	number    uint32 // no other has
	consumer  pulsar.Consumer
	current   uint32  // the batch whose messages are arriving, or none
	single    batch   // what entries have that are no batch
	ledger    int64   // of its last new entry
	partition int32   // that its ids name, 0 also if the topic has none; -1 if nothing came yet
	newest    entryID // no later one was added
	unsettled int     // messages
	acks      int     // under way: requests may be in line behind them
	list      list
	past      past
	taken     uint64 // deliveries that were not dropped as prefetched before a connection was lost: those come again
	largest   int32  // size of the largest batch
	lost      bool   // its connection, or another's, and nothing was received since
	again     uint64 // copies of what was settled of late may come until so many were taken, since a connection was lost
	run       run
	doubted   uint64 // taken when all its messages became doubtful
	gone      bool   // its consumer is closed
	cover     cover

	// Of a Failover partition:
	inactive bool             // another consumer has its messages
	begins   bool             // it became active, and what came since was received before: the broker sends it again
	first    pulsar.MessageID // what was received first then, if a connection was lost since; else run.fresh is
	missed   pulsar.MessageID // the first of the messages that were dropped for that: asked for if later ones come first
}

// list is what a stream's unsettled entries are linked in, as they were seen first.
type list struct {
	head, tail uint32
	unordered  bool // not by id: a consumer that moved back to older messages, or one that was adopted
}

// run is one passage of deliveries over a partition: where the broker rewinds, and after a connection was lost.
type run struct {
	last  entryID // the last arrival
	index int32
	again bool    // it goes over everything unacknowledged
	asked request // the last one for anything, as long as its answer may come
	to    entryID // the newest entry when it was made: a later one may have come with the answer

	// On all types:
	lostAt  time.Time          // when a connection was lost the last time: this topic's, or another's
	heard   time.Time          // when something was received of it after that
	fresh   pulsar.MessageID   // what was received first then: all that is taken before it came by the connection that was lost
	early   []pulsar.MessageID // all that was received before there was another connection: the first of it may have come by the lost one, and never be taken
	resent  uint64             // what is sent again after that has come when so many were taken
	answers bool               // what is received first then may be the answer to a request
	own     bool               // it was this topic's connection, or the partition was another consumer's
}

// request is one for redelivery.
type request struct {
	at    time.Time
	taken uint64 // the answer has come, if it comes, when so many were taken; 0 as long as it may not have been sent
	tries uint8
	more  bool // an earlier one may be answered too
}

// stream returns the stream of what consumer delivers of a topic.
func (t *table) stream(topic string, consumer pulsar.Consumer) *stream {
	s := t.latest
	if s == nil || s.topic != topic {
		s = t.streamNamed(topic)
		t.latest = s
	}
	s.consumer = consumer
	return s
}

func (t *table) streamNamed(topic string) *stream {
	s := t.streams[topic]
	if s == nil {
		t.numbers++
		s = &stream{topic: topic, number: t.numbers, current: none, ledger: -1, partition: -1, newest: entryID{-1, -1}, list: list{head: none, tail: none},
			past: past{pages: map[entryID]*page{}}}
		s.single.stream = s
		t.streams[topic] = s
		if t.lost { // what comes of it was prefetched before, until something is received
			t.disconnected(s, time.Now())
		}
	}
	return s
}

// queue is how many deliveries may be between the broker and the Ledger.
func (t *table) queue(s *stream) uint64 { return uint64(t.o.Queue) + uint64(s.largest) }

// disconnected notes that a connection was lost. The broker sends everything again that is not acknowledged, and what was
// acknowledged of late.
func (t *table) disconnected(s *stream, now time.Time) {
	t.follow(s, none)
	t.releaseParts(s, 0) // an operator may have moved the cursor back
	t.comesAgain(s)
	s.lost = true
	if s.begins && s.run.fresh != nil && s.first == nil { // it may be another's that was lost
		s.first = s.run.fresh
	}
	s.run = run{last: s.run.last, index: s.run.index, lostAt: now, resent: s.run.resent,
		own: t.o.OneTopic && !IsPartition(s.topic)}
}

// IsPartition reports whether a topic is a partition of another.
func IsPartition(topic string) bool { return strings.Contains(topic, "-partition-") }

// comesAgain notes that the broker sends everything again that it has no acknowledgement of.
func (t *table) comesAgain(s *stream) {
	s.lost = false
	s.again = s.taken + 2*t.queue(s) + uint64(s.unsettled+s.unsure())
}

// isOld reports whether a message that arrives came by a connection that was lost.
func (t *table) isOld(s *stream, id pulsar.MessageID) bool {
	fresh := id != nil && (s.run.fresh == id || slices.Contains(s.run.early, id))
	if fresh || s.first == id && id != nil {
		s.first, s.begins = nil, false
		if s.missed != nil && !entryOf(s.missed).before(entryOf(id)) { // it follows
			s.missed = nil
		}
	}
	if fresh {
		if s.lost {
			s.lost, s.run.heard = false, time.Now()
		}
		s.run.fresh, s.run.early = nil, nil
		t.resends(s, id) // those that came before may be what it is a copy of
	}
	return s.lost || s.awaitsFirst()
}

// awaitsFirst reports whether something was received by the new connection, and nothing of it was taken.
func (s *stream) awaitsFirst() bool { return s.run.fresh != nil || s.run.early != nil }

// resends notes that the broker sends again what it sent before: if the connection was certainly this topic's, or if the first message that
// it sends is one that is known, for the oldest come first, and is not the answer to a request.
func (t *table) resends(s *stream, first pulsar.MessageID) {
	id := entryOf(first)
	if _, ok := t.entryAt(id, s); s.run.own || (ok || s.stage(id) > unacked) && !s.run.answers {
		n := uint64(t.begun(s) + s.unsure())    // a broker may keep no batch-index acknowledgements
		if s.run.answers && t.o.RedeliversAll { // and all of it once more, for what was asked for meanwhile
			n *= 2
		}
		s.run.resent = s.taken + 1 + n
	}
}

// follow notes which batch's messages are arriving now. Batch-index acks may have filtered the tail of the last one out.
func (t *table) follow(s *stream, slot uint32) {
	last := s.current
	if s.current = slot; last != slot && last != none {
		t.settleEntry(last, &t.entries.At(last).Value)
	}
}

// isArriving reports whether the messages of a batch are arriving now.
func (t *table) isArriving(s *stream, id entryID) bool {
	return s.current != none && t.entries.At(s.current).Key == id
}

// arrive notes a delivery. Deliveries come in order, so one that is not after the last begins another run.
func (r *run) arrive(id entryID, index int32) {
	if !r.last.before(id) && (r.last != id || index <= r.index) {
		r.again, r.asked = true, request{}
	}
	r.last, r.index = id, index
}

// isComing reports whether what is arriving will deliver a message without a request.
func (t *table) isComing(ref Ref, e *entry) bool {
	s := e.stream()
	if s.current == ref.slot() {
		return ref.index() > e.batch.last
	}
	return t.o.RedeliversAll && s.run.again && s.run.last.before(t.entries.At(ref.slot()).Key)
}

func (t *table) link(s *stream, slot uint32, e *entry) {
	e.prev, e.next = s.list.tail, none
	if s.list.tail == none {
		s.list.head, s.list.unordered = slot, false
	} else {
		last := t.entries.At(s.list.tail)
		last.Value.next = slot
		s.list.unordered = s.list.unordered || t.entries.At(slot).Key.before(last.Key)
	}
	s.list.tail = slot
}

func (t *table) unlink(s *stream, e *entry) {
	if e.prev == none {
		s.list.head = e.next
	} else {
		t.entries.At(e.prev).Value.next = e.next
	}
	if e.next == none {
		s.list.tail = e.prev
	} else {
		t.entries.At(e.next).Value.prev = e.prev
	}
	e.prev, e.next = none, none
}

// unsettled are the entries of a partition of which something is not settled, as they came. The one that is yielded may be settled.
func (t *table) unsettled(s *stream) iter.Seq2[uint32, *entry] {
	return func(yield func(uint32, *entry) bool) {
		for slot := s.list.head; slot != none; {
			e := &t.entries.At(slot).Value
			next := e.next
			if !yield(slot, e) {
				return
			}
			slot = next
		}
	}
}

// message is one that is known, and where it is.
type message struct {
	ref Ref
	e   *entry
	r   *record
}

// messages are the messages of a partition that are not settled, as their entries came. The one that is yielded may be settled or forgotten.
func (t *table) messages(s *stream) iter.Seq[message] {
	return func(yield func(message) bool) {
		for slot, e := range t.unsettled(s) {
			for i := range e.size() {
				if t.entries.At(slot) == nil {
					break
				}
				if r := e.at(i); r.state != unseen && r.state != acked && !yield(message{refOf(slot, i), e, r}) {
					return
				}
			}
		}
	}
}

// remove forgets a partition whose consumer is closed. What is being settled stays until that is over.
func (t *table) remove(s *stream, untrack func(Ref, *record)) {
	for m := range t.messages(s) {
		if !m.r.flags.has(busy) {
			untrack(m.ref, m.r)
			t.forget(m.ref, m.e, m.r)
		}
	}
	s.gone = true
	t.follow(s, none)
	t.releaseParts(s, 0)
	s.past = past{}
	s.consumer = nil // whoever has the stream still must not keep its consumer
	if t.latest == s {
		t.latest = nil
	}
	delete(t.streams, s.topic)
	maps.DeleteFunc(t.ledgers, func(_ int64, other *stream) bool { return other == s })
}
