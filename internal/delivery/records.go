package delivery

import (
	"math"

	"github.com/apache/pulsar-client-go/pulsar"
)

func (t *Table) stream(topic string, consumer pulsar.Consumer) *stream {
	s := t.latest
	if s == nil || s.topic != topic {
		if s = t.streams[topic]; s == nil {
			s = &stream{topic: topic, current: none}
			s.single.stream = s
			t.streams[topic] = s
		}
		t.latest = s
	}
	s.consumer = consumer
	return s
}

// at returns the message of ref, or nil if there is none any more.
func (t *Table) at(ref Ref) (*entry, *record) {
	item := t.entries.At(ref.slot)
	if item == nil || ref.index >= item.Value.size() {
		return nil, nil
	}
	if r := item.Value.at(ref.index); r.state != unseen {
		return &item.Value, r
	}
	return nil, nil
}

func (t *Table) find(id pulsar.MessageID) (Ref, *entry, *record) {
	key := KeyOf(id)
	slot, ok := t.entries.Find(key.entryID())
	if !ok {
		return Ref{}, nil, nil
	}
	ref := Ref{slot, key.Index}
	e, r := t.at(ref)
	return ref, e, r
}

// findHeld finds a message if the application has this delivery of it.
func (t *Table) findHeld(id pulsar.MessageID) (Ref, *entry, *record) {
	ref, e, r := t.find(id)
	if r == nil || r.state != held || r.isStale(id) {
		return Ref{}, nil, nil
	}
	return ref, e, r
}

func (t *Table) key(ref Ref) Key { return t.entries.At(ref.slot).Key.key(ref.index) }

// add returns the entry of key, which has room for a batch of size and is s's.
func (t *Table) add(key Key, size int32, s *stream) (Ref, *entry) {
	slot, added := t.entries.Add(key.entryID())
	e := &t.entries.At(slot).Value
	if added || !e.isBatch() {
		e.batch = &s.single
	} else {
		e.batch.stream = s
	}
	e.grow(key.Index, size)
	return Ref{slot, key.Index}, e
}

// enter hands out a message that was not seen before.
func (t *Table) enter(ref Ref, e *entry, id pulsar.MessageID, count uint32) {
	if e.isBatch() {
		e.batch.seen++
	}
	e.batch.stream.unsettled++
	r := e.at(ref.index)
	r.count = count
	t.hand(ref, r, id)
}

func (t *Table) move(ref Ref, r *record, to state) {
	if r.state != unseen {
		t.states[r.state]--
	}
	t.states[to]++
	r.state = to
	if to != held && to != settling {
		r.id = t.newest(ref, r)
		delete(t.newer, ref)
	}
}

func (t *Table) hand(ref Ref, r *record, id pulsar.MessageID) {
	r.id, r.tries = id, 0
	r.flags &^= measured
	t.move(ref, r, held)
}

// newest returns the id of the newest delivery.
func (t *Table) newest(ref Ref, r *record) pulsar.MessageID {
	if id := t.newer[ref]; id != nil {
		return id
	}
	return r.id
}

// weight returns the size of a message, roughly.
func weight(msg pulsar.Message) int64 { return int64(len(msg.Payload())) + 512 }

func (t *Table) keep(ref Ref, msg pulsar.Message) {
	t.drop(ref)
	size := weight(msg)
	if t.heldBytes+size > t.o.HoldLimit {
		t.Dropped++
		return
	}
	t.Held++
	t.copies[ref] = msg
	t.heldBytes += size
}

func (t *Table) drop(ref Ref) {
	if msg := t.copies[ref]; msg != nil {
		t.heldBytes -= weight(msg)
		delete(t.copies, ref)
	}
}

// count notes one more hand-over of a message. In a batch the broker counts the entry, so siblings would burn each other's
// attempts; there the own count is the truth.
func (t *Table) count(e *entry, r *record, msg pulsar.Message) {
	if r.flags.has(postponed) {
		r.flags &^= postponed
	} else {
		t.Redelivered++
		if r.count < math.MaxUint32 {
			r.count++
		}
	}
	if !e.isBatch() {
		r.count = max(r.count, msg.RedeliveryCount())
	}
}
