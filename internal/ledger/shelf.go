package ledger

import "github.com/apache/pulsar-client-go/pulsar"

// shelf has the messages that are kept here until they are due or published elsewhere, as long as they fit the hold limit.
type shelf struct {
	limit    int64
	bytes    int64
	messages map[Ref]kept
	leaving  int // how many are to be published elsewhere
}

type kept struct {
	msg     pulsar.Message
	leaving bool
}

// overhead is what a message costs beside its payload, roughly.
const overhead = 512

// payloadSize is what a payload keeps alive. Those of a batch are slices of one buffer, which the capacity of the first
// shows.
func payloadSize(msg pulsar.Message) int64 { return int64(cap(msg.Payload())) }

// has reports whether a message is on the shelf.
func (s *shelf) has(ref Ref) bool {
	_, ok := s.messages[ref]
	return ok
}

// minLeaving is how many bytes there are room for at least, if they are leaving: they must some day.
const minLeaving = 1 << 20

// keep puts a message on the shelf and reports whether there is room.
func (t *table) keep(ref Ref, e *entry, msg pulsar.Message, leaving bool) bool {
	t.drop(ref, e)
	limit := t.shelf.limit
	if leaving {
		limit = max(limit, minLeaving)
	}
	if t.shelf.bytes+t.sizeOf(e, msg) > limit && (!leaving || t.shelf.leaving > 0) {
		return false
	}
	t.put(ref, e, msg, leaving)
	return true
}

// sizeOf is what a message would add to the shelf: the buffer of a batch counts once.
func (t *table) sizeOf(e *entry, msg pulsar.Message) int64 {
	switch {
	case !e.isBatch():
		return overhead + payloadSize(msg)
	case e.batch.kept == 0:
		return overhead + max(e.batch.size, payloadSize(msg))
	}
	return overhead
}

// put puts a message on the shelf, whether there is room or not.
func (t *table) put(ref Ref, e *entry, msg pulsar.Message, leaving bool) {
	t.drop(ref, e)
	size := t.sizeOf(e, msg)
	if e.isBatch() {
		if e.batch.kept++; e.batch.kept == 1 {
			e.batch.size = size - overhead
		}
	}
	if leaving {
		t.shelf.leaving++
	}
	t.shelf.messages[ref] = kept{msg, leaving}
	t.shelf.bytes += size
}

// drop takes a message off the shelf, if it is there, and returns it.
func (t *table) drop(ref Ref, e *entry) pulsar.Message {
	if len(t.shelf.messages) == 0 {
		return nil
	}
	k, ok := t.shelf.messages[ref]
	if !ok {
		return nil
	}
	delete(t.shelf.messages, ref)
	t.shelf.bytes -= overhead
	if !e.isBatch() {
		t.shelf.bytes -= payloadSize(k.msg)
	} else if e.batch.kept--; e.batch.kept == 0 {
		t.shelf.bytes -= e.batch.size
	}
	if k.leaving {
		t.shelf.leaving--
	}
	return k.msg
}
