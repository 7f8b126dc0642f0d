package ack

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// endlessConsumer delivers messages for ever and accepts every acknowledgement.
type endlessConsumer struct {
	pulsar.Consumer
	ch chan pulsar.ConsumerMessage
}

func (e *endlessConsumer) Name() string                        { return "endless" }
func (e *endlessConsumer) Subscription() string                { return testkit.Subscription }
func (e *endlessConsumer) Chan() <-chan pulsar.ConsumerMessage { return e.ch }
func (e *endlessConsumer) Close()                              {}
func (e *endlessConsumer) AckID(pulsar.MessageID) error        { return nil }

// idOf returns the id of message n of a topic whose entries are batches of the given size, or single messages.
func idOf(n int, batch int32) pulsar.MessageID {
	if batch == 0 {
		return pulsar.NewMessageID(1, int64(n), 0, 0)
	}
	return &testkit.BatchID{MessageID: pulsar.NewMessageID(1, int64(n)/int64(batch), int32(n)%batch, 0), Size: batch}
}

// BenchmarkConsumer measures the time that this library adds to receiving and acknowledging a message.
func BenchmarkConsumer(b *testing.B) {
	for name, of := range map[string]struct {
		batch   int32
		options []redelivery.Option
	}{
		"defaults": {}, "ack timeout": {options: []redelivery.Option{redelivery.WithAckTimeout(time.Minute)}},
		"batches": {batch: 100}, "batches, ack timeout": {100, []redelivery.Option{redelivery.WithAckTimeout(time.Minute)}},
	} {
		b.Run(name, func(b *testing.B) {
			inner := &endlessConsumer{ch: make(chan pulsar.ConsumerMessage, 1000)}
			c, err := redelivery.Wrap(inner,
				append(of.options, redelivery.WithLogger(slog.New(slog.DiscardHandler)))...)
			require.NoError(b, err)
			msgs := make([]pulsar.ConsumerMessage, 1000)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if n%1000 == 0 {
					b.StopTimer()
					for i := range msgs {
						inner.ch <- pulsar.ConsumerMessage{Consumer: inner,
							Message: testkit.Message{MessageID: idOf(n+i, of.batch)}}
					}
					b.StartTimer()
				}
				n++
				msg, err := c.Receive(context.Background())
				if err != nil {
					b.Fatal(err)
				}
				if err := c.Ack(msg); err != nil {
					b.Fatal(err)
				}
			}
			c.Close()
		})
	}
}

func BenchmarkAckCumulativeBesideOthers(b *testing.B) {
	for _, waiting := range []int{0, 100_000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			ack := ackBesideWaiting(b, waiting)
			for b.Loop() {
				ack()
			}
		})
	}
}

// BenchmarkAckCumulative shows that the cost does not grow with the number of messages settled before.
func BenchmarkAckCumulative(b *testing.B) {
	c, inner := testkit.SubscribeFake(b, pulsar.Exclusive)
	n := int64(0)
	for b.Loop() {
		n++
		inner.Deliver(n)
		msg, err := c.Receive(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		if err := c.AckCumulative(msg); err != nil {
			b.Fatal(err)
		}
	}
}
