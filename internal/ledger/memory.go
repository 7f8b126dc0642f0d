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

// overhead is what a message costs beside payload and properties, roughly.
const overhead = 512

// minLeaving is how many bytes there are room for at least, if they are leaving: they must some day.
const minLeaving = 1 << 20

// sizeOf returns what a message keeps alive: a payload of a batch is a slice of one buffer, which the capacity of the first shows. It is
// called without a lock: a message may be of a consumer that is not pulsar-client-go's, and panic.
func (l *Ledger) sizeOf(msg pulsar.Message) (n int64) {
	if msg == nil || l.unsized.Load() {
		return overhead
	}
	defer func() {
		if recover() != nil {
			l.unsized.Store(true)
			n = overhead
		}
	}()
	n = int64(cap(msg.Payload()))
	for key, value := range msg.Properties() {
		n += int64(len(key) + len(value) + propertyOverhead)
	}
	return n
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

// keep keeps a message in place of its id, if there is room, and reports whether it does. size is what it keeps alive.
func (t *table) keep(ref Ref, e *entry, r *record, msg pulsar.Message, size int64, leaves bool) bool {
	t.drop(e, r)
	n := classOf(overhead + size)
	needs := n.bytes()
	if e.isBatch() {
		n = classOf(overhead)
		needs = n.bytes()
		if e.batch.kept == 0 {
			e.batch.size = max(e.batch.size, size)
			needs += e.batch.size
		}
	}
	if t.memory.bytes+needs > t.room(r, leaves) {
		return false
	}
	t.put(ref, e, r, msg, n)
	if leaves {
		r.flags |= leaving
		t.memory.leaving++
	}
	return true
}

// put keeps a message of a size, whether there is room or not.
func (t *table) put(ref Ref, e *entry, r *record, msg pulsar.Message, n sizeClass) {
	t.drop(e, r)
	if id := msg.ID(); r.id() != id {
		t.name(ref, r, id)
	}
	r.of, r.size = msg, n
	t.memory.bytes += n.bytes()
	if e.isBatch() {
		if e.batch.kept++; e.batch.kept == 1 {
			t.memory.bytes += e.batch.size
		}
	}
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
