package ledger

import (
	"math"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// isWhole reports whether an id is that of a batch, and of none of its messages: the application has made it.
func isWhole(e *entry, id pulsar.MessageID) bool { return e.isBatch() && id.BatchIdx() < 0 }

// SettleWhole settles what is known of a batch of which the whole was acknowledged by its own id.
func (l *Ledger) SettleWhole(n Name) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, of := l.table.streamOf(n), entryOf(n.ID)
	if _, e, _ := l.find(n); s == nil || e == nil || !isWhole(e, n.ID) { // its first message may not have come here
		return
	}
	for l.offersUpTo(s, of, math.MaxInt32) {
		l.withdraw()
	}
	if !s.gone { // with all its messages, by a seek meanwhile
		l.settleAll(s, of, of, math.MaxInt32)
	}
}

// HadOf returns the messages of a batch that the application has; whole is false if n is not the id of a batch that is known.
func (l *Ledger) HadOf(n Name) (all []Name, whole bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ref, e, _ := l.find(n)
	if e == nil || !isWhole(e, n.ID) {
		return nil, false
	}
	for i := range e.size() {
		if r := e.seen(i); r != nil && r.state == inFlight {
			all = append(all, Name{ID: l.table.newest(refOf(ref.slot(), i), r), Topic: e.stream().topic})
		}
	}
	return all, true
}

// SettleTo settles all messages of a partition up to and including one, for a cumulative acknowledgement by id that succeeded. It
// returns an id if a newer delivery of that message is to be acknowledged as well, and what it settled where somebody observes.
func (l *Ledger) SettleTo(n Name, id pulsar.MessageID) (again pulsar.MessageID, settled []Settling) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.table.streamOf(n)
	if s == nil {
		return nil, nil
	}
	to, index := entryOf(n.ID), indexOf(n.ID)
	for l.offersUpTo(s, to, index) { // one after them would be handed out after its successor, whose cumulative acknowledgement covers it
		l.withdraw()
	}
	if s.gone { // likewise
		return nil, nil
	}
	if ref, e, r := l.table.find(n); e != nil && isWhole(e, n.ID) {
		index = math.MaxInt32
	} else if r != nil {
		if next := toAck(e, l.table.newest(ref, r), l.ackedTo(e, ref.index())); next != id && !isWhole(e, id) {
			again = next
		}
	}
	settled = l.settleAll(s, entryID{}, to, index)
	if l.o.DropsCovered {
		l.cover(s, to, id)
	}
	return again, settled
}

// settleAll settles the messages of a stream from one entry on up to an index of another, and returns them where somebody observes. The caller
// holds mu.
func (l *Ledger) settleAll(s *stream, from, to entryID, index int32) (settled []Settling) {
	for m := range l.table.messages(s) {
		switch key := l.table.entries.At(m.ref.slot()).Key; {
		case to.before(key) && !s.list.unordered:
			return settled
		case to.before(key) || key == to && m.ref.index() > index || key.before(from):
			continue
		}
		if l.o.Observed {
			settled = append(settled, Settling{})
			l.describe(m.ref, m.e, m.r, &settled[len(settled)-1])
		}
		l.outcome(false)
		l.settled(m.ref, m.e, m.r)
	}
	return settled
}

// cover is the last cumulative acknowledgement of a stream. If it got lost with a connection nothing makes up for
// that but another: of what it covers upstream drops all copies.
type cover struct {
	id   pulsar.MessageID // what upstream has acknowledged to; nil if there is none, or the broker has it
	at   time.Time        // when
	part bool             // id is in the middle of a batch, by index: it is not made once more before all of the batch is settled
	due  bool             // and is to be made once more then
}

// coverTime is for how long an acknowledgement may be lost though the connection seems to be there: upstream notices that a link is dead after
// three keep-alive intervals.
const coverTime = 2 * time.Minute

// cover notes that upstream has acknowledged to an entry, by id. In the middle of a batch it sends that of the entry before. The caller holds mu.
func (l *Ledger) cover(s *stream, to entryID, id pulsar.MessageID) {
	part := s.stage(to) == unacked
	switch {
	case part && l.indexAcks != NoIndexAcks:
		id = pulsar.NewMessageID(id.LedgerID(), id.EntryID(), id.BatchSize(), id.PartitionIdx())
	case part:
		id, part = pulsar.NewMessageID(id.LedgerID(), id.EntryID()-1, 0, id.PartitionIdx()), false
	}
	c := &s.cover
	switch {
	case c.id == nil || entryOf(c.id).before(entryOf(id)):
		c.id, c.part, c.due = id, part, false
	case entryOf(c.id) == entryOf(id) && c.id.BatchIdx() < id.BatchIdx(): // by then upstream refuses what is before this one
		c.id = id
	}
	c.at = time.Now()
}

// coverAgain returns what makes the last cumulative acknowledgement of a stream once more, or nil: upstream refuses an id that is not after the last
// one, and the broker is told of no index. The caller holds mu.
func (s *stream) coverAgain() pulsar.MessageID {
	c := &s.cover
	if c.due = c.id != nil && !s.isCoverWhole(); c.id == nil || c.due {
		return nil
	}
	c.id = pulsar.NewMessageID(c.id.LedgerID(), c.id.EntryID(), max(0, c.id.BatchIdx())+1, c.id.PartitionIdx())
	return c.id
}

// isCoverWhole reports whether the last cumulative acknowledgement of a stream covers nothing less than whole entries.
func (s *stream) isCoverWhole() bool { return !s.cover.part || s.stage(entryOf(s.cover.id)) > unacked }

// AckAgain has the last cumulative acknowledgements made once more, those that may have been lost with a connection.
func (l *Ledger) AckAgain(ack func(consumer pulsar.Consumer, topic string, id pulsar.MessageID)) {
	for _, a := range l.coverAgain() {
		ack(a.consumer, a.topic, a.id)
	}
}

func (l *Ledger) coverAgain() (lost []ask) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.table.streams {
		if id := s.coverAgain(); id != nil && s.consumer != nil {
			lost = append(lost, ask{s.consumer, s.topic, id})
		}
	}
	return lost
}

// ackedTo returns how many messages of a batch are acknowledged when all up to index are. The caller holds mu.
func (l *Ledger) ackedTo(e *entry, index int32) int32 {
	n := e.batch.settledForUpstream()
	for i := range index + 1 {
		if r := e.seen(i); r != nil && r.state != acked {
			n++
		}
	}
	return n
}

// Newest returns what to acknowledge a message with, and at which consumer; nil if that is unknown. What is before its batch has to be
// acknowledged cumulatively first, if before is not nil: after an acknowledgement failed upstream does not send that again.
func (l *Ledger) Newest(n Name) (consumer pulsar.Consumer, before, id pulsar.MessageID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ref, e, r := l.table.find(n); r != nil {
		if isWhole(e, n.ID) {
			return e.stream().consumer, nil, n.ID
		}
		id = l.table.newest(ref, r)
		if e.isBatch() && e.flags.has(ackWhole) && l.indexAcks == NoIndexAcks {
			before = pulsar.NewMessageID(id.LedgerID(), id.EntryID()-1, -1, id.PartitionIdx())
		}
		return e.stream().consumer, before, id
	}
	if s := l.table.streamOf(n); s != nil {
		consumer = s.consumer
	}
	return consumer, nil, n.ID
}

// NotSettledTo tells that a cumulative acknowledgement failed.
func (l *Ledger) NotSettledTo(n Name) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, e, r := l.table.find(n); r != nil {
		e.flags |= ackWhole
	}
}
