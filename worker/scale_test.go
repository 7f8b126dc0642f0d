package worker

import (
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

type weighed struct {
	pulsar.Message
	id         pulsar.MessageID
	payload    []byte
	properties map[string]string
}

func (m weighed) ID() pulsar.MessageID          { return m.id }
func (m weighed) Topic() string                 { return "t" }
func (m weighed) Payload() []byte               { return m.payload }
func (m weighed) Properties() map[string]string { return m.properties }

type idOfBatch struct {
	pulsar.MessageID
	size int32
}

func (id idOfBatch) BatchSize() int32 { return id.size }

// One message of a batch keeps the buffer of all alive, and a message its properties.
func TestScale(t *testing.T) {
	buffer := make([]byte, 1000*100)
	of := func(index int32) task {
		m := weighed{id: idOfBatch{pulsar.NewMessageID(1, 1, index, 0), 1000}, payload: buffer[index*100 : index*100+100]}
		return task{msg: m, size: sizeOf(m)}
	}
	var s scale
	s.put(of(500))
	require.EqualValues(t, messageSize+len(buffer), s.bytes)
	s.put(of(0))
	require.EqualValues(t, 2*messageSize+len(buffer), s.bytes)
	s.take(of(500))
	s.take(of(0))
	require.Zero(t, s.bytes)
	require.Empty(t, s.buffers)

	m := weighed{id: pulsar.NewMessageID(1, 2, 0, 0), payload: make([]byte, 7), properties: map[string]string{"key": "value"}}
	alone := task{msg: m, size: sizeOf(m)}
	s.put(alone)
	require.EqualValues(t, messageSize+7+propertySize+len("keyvalue"), s.bytes)
	m.properties["more"] = "that a handler adds"
	s.take(alone)
	require.Zero(t, s.bytes)
}
