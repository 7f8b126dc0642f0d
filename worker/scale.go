package worker

import "github.com/apache/pulsar-client-go/pulsar"

// scale weighs the messages that wait by what they keep alive. Payloads of a batch are slices of one buffer, which counts once.
type scale struct {
	bytes   int64
	buffers map[batch]buffer
}

// batch names the entry of a topic that a message came in.
type batch struct {
	topic         string
	ledger, entry int64
}

type buffer struct {
	messages int
	bytes    int64
}

const (
	messageSize  = 512 // what a message counts beside its payload and properties
	propertySize = 48  // what a property takes in a map beside its text
)

// sizeOf returns what a message keeps alive beside the buffer of its batch.
func sizeOf(msg pulsar.Message) int64 {
	n := int64(messageSize)
	for key, value := range msg.Properties() {
		n += int64(propertySize + len(key) + len(value))
	}
	if msg.ID().BatchSize() <= 1 {
		n += int64(cap(msg.Payload()))
	}
	return n
}

// put counts a message that begins to wait.
func (s *scale) put(t task) {
	s.bytes += t.size
	id := t.msg.ID()
	size := int64(id.BatchSize())
	if size <= 1 {
		return
	}
	of := batchOf(t.msg)
	b := s.buffers[of]
	if b.messages++; b.messages == 1 {
		left := max(1, size-int64(max(0, id.BatchIdx()))) // a slice reaches to the end of its buffer
		b.bytes = int64(cap(t.msg.Payload())) * size / left
		s.bytes += b.bytes
	}
	if s.buffers == nil {
		s.buffers = map[batch]buffer{}
	}
	s.buffers[of] = b
}

// take counts a message that waits no longer.
func (s *scale) take(t task) {
	s.bytes -= t.size
	if t.msg.ID().BatchSize() <= 1 {
		return
	}
	of := batchOf(t.msg)
	b := s.buffers[of]
	if b.messages--; b.messages > 0 {
		s.buffers[of] = b
		return
	}
	s.bytes -= b.bytes
	delete(s.buffers, of)
}

func batchOf(msg pulsar.Message) batch {
	return batch{msg.Topic(), msg.ID().LedgerID(), msg.ID().EntryID()}
}
