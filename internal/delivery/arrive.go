package delivery

import (
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

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
	t.expire(now)
	id := cm.ID()
	if t.o.Ahead > 0 {
		t.largest = max(t.largest, weight(cm.Message))
	}
	s := t.stream(cm.Topic(), cm.Consumer)
	key := KeyOf(id)
	if t.hasPassed(s, key, now) {
		if s.run.arrive(key, endless) {
			s.asked = time.Time{}
		}
		return Swallow, Ref{}
	}
	ref, e := t.add(key, id.BatchSize(), s)
	t.follow(s, ref.slot, now)
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
func (t *Table) follow(s *stream, slot uint32, now time.Time) {
	if s.current == slot {
		return
	}
	if last := t.entries.At(s.current); last != nil { // batch-index acks may have filtered its tail out
		last.Value.batch.run.over = true
		t.settleEntry(s.current, &last.Value, now)
	}
	s.current = slot
}

// answered notes a delivery. If it answers a request, answered returns when that was made.
func (t *Table) answered(key Key, ref Ref, e *entry) (asked time.Time) {
	s, another := e.batch.stream, true
	if e.isBatch() {
		another = e.batch.run.arrive(key, e.size())
	}
	if t.o.Rewinds {
		another = s.run.arrive(key, endless)
	}
	if another {
		asked = t.lastAsked(ref, s)
		t.unask(ref.slot)
		s.asked = time.Time{}
	}
	return asked
}

func (t *Table) lastAsked(ref Ref, s *stream) time.Time {
	if t.o.Rewinds {
		return s.asked
	}
	return t.asked[ref.slot].at
}
