package ledger

import (
	"math"
	"math/bits"

	"github.com/apache/pulsar-client-go/pulsar"
)

// memory counts what is kept here: messages that the application has, so that it may fail on them by any means, and those that wait.
// What is kept is what upstream delivered, never what the application has wrapped around it.
type memory struct {
	limit   int64
	bytes   int64
	leaving int // how many messages are to be published elsewhere
}

// overhead is what a message costs beside payload, keys and properties, roughly.
const overhead = 512

// minLeaving is how many bytes there are room for at least, if they are leaving: they must some day.
const minLeaving = 1 << 20

// weight is what a message keeps alive.
type weight struct {
	own    int64 // with its keys and properties
	buffer int64 // of its batch, which has room for all payloads, and counts once for all; 0 of one that came alone
}

// weigh returns what a message keeps alive: a payload of a batch is a slice of one buffer, to the end of which its capacity reaches. It is
// called without a lock: a message may be of a consumer that is not pulsar-client-go's, and panic.
func (l *Ledger) weigh(msg pulsar.Message) (w weight) {
	w.own = overhead
	if msg == nil {
		return w
	}
	defer func() { _ = recover() }()                         // what is counted by then counts
	if properties := msg.Properties(); len(properties) > 0 { // to begin to range over none takes 20 ns
		for key, value := range properties {
			w.own += int64(len(key) + len(value) + propertyOverhead)
		}
	}
	id, payload := msg.ID(), int64(cap(msg.Payload()))
	if size := int64(id.BatchSize()); size > 1 {
		w.buffer = payload * size / max(1, size-int64(indexOf(id)))
	} else {
		w.own += payload
	}
	w.own += int64(len(msg.Key()) + len(msg.OrderingKey()))
	return w
}

// propertyOverhead is what a property takes in a map beside its text.
const propertyOverhead = 48

// sizeClass is a number of bytes that fits one, rounded up by an eighth at most.
type sizeClass uint8

func classOf(n int64) sizeClass {
	e := max(0, bits.Len64(uint64(n))-4)
	return sizeClass(min(255, int64(8*e)+(n+1<<e-1)>>e))
}

func (c sizeClass) bytes() int64 {
	if c < 16 {
		return int64(c)
	}
	return int64(c&7+8) << (c>>3 - 1)
}

// room is how many bytes of messages there may be: what the application has leaves room for what waits.
func (t *table) room(r *record, leaves bool) int64 {
	switch {
	case leaves && t.memory.leaving == 0:
		return math.MaxInt64
	case leaves:
		return max(t.memory.limit, minLeaving)
	case r.state == inFlight && !t.o.isLast(r.count):
		return t.memory.limit / 2
	}
	return t.memory.limit
}

// isLast reports whether a message with this redelivery count is given up when the application does not settle it this time.
func (o *Options) isLast(count uint32) bool {
	return o.MaxDeliveries > 0 && uint64(count)+1 >= uint64(o.MaxDeliveries)
}

// keep keeps a message in place of its id, if there is room, and reports whether it does.
func (t *table) keep(ref Ref, e *entry, r *record, msg pulsar.Message, w weight, leaves bool) bool {
	if !t.keepIn(t.room(r, leaves), ref, e, r, msg, w) {
		return false
	}
	if leaves {
		r.flags |= leaving
		t.memory.leaving++
	}
	return true
}

// keepIn keeps a message if so many bytes have room for it too.
func (t *table) keepIn(room int64, ref Ref, e *entry, r *record, msg pulsar.Message, w weight) bool {
	t.drop(e, r)
	n, needs := classOf(w.own), int64(0)
	switch {
	case !e.isBatch():
		n = classOf(w.own + w.buffer)
	case e.batch.kept == 0:
		if e.batch.size == 0 { // the first to come knows best how large it is
			e.batch.size = w.buffer
		}
		needs = e.batch.size
	}
	if t.memory.bytes+needs+n.bytes() > room {
		return false
	}
	if t.shared || len(t.newer) > 0 {
		if id := msg.ID(); r.id() != id {
			t.name(ref, r, id)
		}
	}
	r.of, r.size = msg, n
	t.memory.bytes += n.bytes()
	if e.isBatch() {
		if e.batch.kept++; e.batch.kept == 1 {
			t.memory.bytes += e.batch.size
		}
	}
	return true
}

// drop lets go of a message that is kept, but for its id.
func (t *table) drop(e *entry, r *record) {
	if !r.isKept() {
		return
	}
	t.memory.bytes -= r.size.bytes()
	if e.isBatch() {
		if e.batch.kept--; e.batch.kept == 0 {
			t.memory.bytes -= e.batch.size
		}
	}
	r.of, r.size = r.id(), 0
	t.stays(r)
}

// stays notes that a message is not to be published elsewhere any more.
func (t *table) stays(r *record) {
	if r.flags.has(leaving) {
		r.flags &^= leaving
		t.memory.leaving--
	}
}

// Hold keeps a message that the application has, and is to have for long, and reports whether the limit has room for it. Messages that wait
// for redelivery make room: the broker has them too.
func (l *Ledger) Hold(n Name, msg pulsar.Message) bool {
	w := l.weigh(msg)
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &l.table
	ref, e, r := l.find(n)
	if msg == nil || r == nil || !isWith(r, n) || r.isKept() {
		return true
	}
	return t.keepIn(t.memory.limit, ref, e, r, msg, w) ||
		t.makeRoom(w.own+w.buffer) && t.keepIn(t.memory.limit, ref, e, r, msg, w)
}

// makeRoom drops messages that wait until there are so many bytes of room, and an eighth of the limit, so that this is rare; it reports
// whether it dropped any. A broker that forgets the subscription with the connection may not send them again.
func (t *table) makeRoom(needs int64) (some bool) {
	if t.states[waiting] == 0 || t.o.NonDurable {
		return false
	}
	for _, s := range t.streams {
		for m := range t.messages(s) {
			if t.memory.bytes+needs <= t.memory.limit*7/8 {
				return some
			}
			if m.r.state == waiting && m.r.isKept() && m.r.flags&(leaving|busy|uncounted) == 0 {
				t.drop(m.e, m.r)
				some = true
			}
		}
	}
	return some
}
