package upstream_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/upstream"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// stub is a consumer without a broker. A test sets the functions that the stub calls.
type stub struct {
	pulsar.Consumer
	channel chan pulsar.ConsumerMessage // nil for a consumer without a queue
	receive func(context.Context) (pulsar.Message, error)
	close   func()
}

func (s *stub) Chan() <-chan pulsar.ConsumerMessage {
	if s.channel == nil {
		panic("zeroQueueConsumer cannot support Chan method")
	}
	return s.channel
}

func (s *stub) Receive(ctx context.Context) (pulsar.Message, error) { return s.receive(ctx) }
func (s *stub) Close()                                              { s.close() }

// withMessages returns a stub whose channel has n messages and room for one more.
func withMessages(n int) *stub {
	s := &stub{channel: make(chan pulsar.ConsumerMessage, n+1)}
	for entry := range n {
		s.channel <- numbered(entry)
	}
	return s
}

// message has the methods of a message that the tests need.
type message struct {
	pulsar.Message
	id         pulsar.MessageID
	payload    []byte
	key        string
	ordering   string
	properties map[string]string
}

func (m *message) ID() pulsar.MessageID          { return m.id }
func (m *message) Payload() []byte               { return m.payload }
func (m *message) Key() string                   { return m.key }
func (m *message) OrderingKey() string           { return m.ordering }
func (m *message) Properties() map[string]string { return m.properties }

// numbered returns a message whose entry has a number.
func numbered(entry int) pulsar.ConsumerMessage {
	return pulsar.ConsumerMessage{Message: &message{id: pulsar.NewMessageID(1, int64(entry), -1, -1)}}
}

// entryOf returns the number of an entry, or -1 if there is no message.
func entryOf(cm pulsar.ConsumerMessage, ok bool) int {
	if !ok {
		return -1
	}
	return int(cm.ID().EntryID())
}

// id is the id of one message of a batch.
type id struct {
	pulsar.MessageID
	size int32
}

func (i id) BatchSize() int32 { return i.size }

func idOf(index, size int32) pulsar.MessageID { return id{pulsar.NewMessageID(7, 8, index, 9), size} }

// silent returns the Events that a test sets, with the others doing nothing.
func silent(set upstream.Events) upstream.Events {
	if set.Lost == nil {
		set.Lost = func() {}
	}
	if set.Prefetched == nil {
		set.Prefetched = func(pulsar.ConsumerMessage) {}
	}
	if set.Active == nil {
		set.Active = func(any, string, bool) {}
	}
	if set.Closed == nil {
		set.Closed = func(pulsar.Consumer, error) {}
	}
	if set.Outer == nil {
		set.Outer = func(inner pulsar.Consumer) pulsar.Consumer { return inner }
	}
	return set
}

func newHooks() *upstream.Hooks { return upstream.NewHooks(silent(upstream.Events{})) }

// subscribe returns a consumer with hooks.
func subscribe(t *testing.T, client pulsar.Client, hooks *upstream.Hooks, opts pulsar.ConsumerOptions,
	p upstream.Plan) pulsar.Consumer {
	t.Helper()
	opts.SubscriptionName = "s"
	consumer, err := client.Subscribe(hooks.Options(opts, p))
	require.NoError(t, err)
	t.Cleanup(consumer.Close)
	return consumer
}

// publish publishes n messages.
func publish(t *testing.T, broker *pulsartest.Server, topic string, n int) {
	t.Helper()
	for i := range n {
		broker.Publish(t, topic, &pulsar.ProducerMessage{Payload: fmt.Appendf(nil, "message %d", i)})
	}
}

// publishBatch publishes one batch of n messages of 1,000 bytes.
func publishBatch(t *testing.T, client pulsar.Client, topic string, n int) {
	t.Helper()
	producer, err := client.CreateProducer(
		pulsar.ProducerOptions{Topic: topic, BatchingMaxPublishDelay: waittest.Limit})
	require.NoError(t, err)
	defer producer.Close()
	for range n {
		producer.SendAsync(waittest.Context(t), &pulsar.ProducerMessage{Payload: make([]byte, 1000)},
			func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
				if err != nil {
					t.Error(err)
				}
			})
	}
	require.NoError(t, producer.FlushWithCtx(waittest.Context(t)))
}
