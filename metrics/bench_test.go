package metrics_test

import (
	"context"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/metrics"
)

// seriesPerSubscription counts the series of a subscription that has no Worker and no redelivery. A histogram counts as
// one. The terms of the sum are, in order: settled, dead letters, redelivered with failures to settle, other failures,
// swallowed, dropped, losses, attempts, gauges.
const seriesPerSubscription = 7 + 5 + 7 + 2 + 1 + 1 + 3 + 7 + 12

// BenchmarkConsumer measures what the metrics cost per message.
func BenchmarkConsumer(b *testing.B) {
	m, err := metrics.New(prometheus.NewRegistry())
	require.NoError(b, err)
	byTopic, err := metrics.New(prometheus.NewRegistry(), metrics.WithTopic())
	require.NoError(b, err)
	for _, c := range []struct {
		name    string
		options []redelivery.Option
	}{{"without", nil}, {"metrics", []redelivery.Option{m.Observe()}},
		{"metrics by topic", []redelivery.Option{byTopic.Observe()}}} {
		b.Run(c.name, func(b *testing.B) {
			inner := newFakeConsumer("sub")
			consumer, err := redelivery.Wrap(inner, append(c.options, redelivery.WithLogger(silent))...)
			require.NoError(b, err)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if n%1000 == 0 {
					b.StopTimer()
					for i := range 1000 {
						inner.ch <- pulsar.ConsumerMessage{Consumer: inner,
							Message: message{topic: "persistent://a/b/c-partition-1",
								id: pulsar.NewMessageID(1, int64(n+i), 0, 0)}}
					}
					b.StartTimer()
				}
				n++
				msg, err := consumer.Receive(context.Background())
				if err != nil {
					b.Fatal(err)
				}
				if err := consumer.Ack(msg); err != nil {
					b.Fatal(err)
				}
			}
			consumer.Close()
		})
	}
}

// fakeConsumer delivers the messages that a test puts into ch, and accepts every acknowledgement.
type fakeConsumer struct {
	pulsar.Consumer
	subscription string
	ch           chan pulsar.ConsumerMessage
}

func newFakeConsumer(subscription string) *fakeConsumer {
	return &fakeConsumer{subscription: subscription, ch: make(chan pulsar.ConsumerMessage, 1000)}
}

func (e *fakeConsumer) Name() string { return "endless" }

func (e *fakeConsumer) Subscription() string { return e.subscription }

func (e *fakeConsumer) Chan() <-chan pulsar.ConsumerMessage { return e.ch }

func (e *fakeConsumer) Close() {}

func (e *fakeConsumer) AckID(pulsar.MessageID) error { return nil }

func (e *fakeConsumer) NackID(pulsar.MessageID) {}

// message has only the fields that the Consumer reads.
type message struct {
	pulsar.Message
	topic string
	id    pulsar.MessageID
}

func (m message) ID() pulsar.MessageID { return m.id }

func (m message) RedeliveryCount() uint32 { return 0 }

func (m message) Payload() []byte { return nil }

func (m message) Topic() string { return m.topic }

func (m message) GetEncryptionContext() *pulsar.EncryptionContext { return nil }
