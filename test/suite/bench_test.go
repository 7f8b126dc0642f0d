package suite

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
)

// endlessConsumer delivers one message after the other and takes every acknowledgement.
type endlessConsumer struct {
	pulsar.Consumer
	ch chan pulsar.ConsumerMessage
}

func (e *endlessConsumer) Name() string                        { return "endless" }
func (e *endlessConsumer) Subscription() string                { return sub }
func (e *endlessConsumer) Chan() <-chan pulsar.ConsumerMessage { return e.ch }
func (e *endlessConsumer) Close()                              {}
func (e *endlessConsumer) AckID(pulsar.MessageID) error        { return nil }

// BenchmarkConsumer has what this library adds to receiving and acknowledging a message.
func BenchmarkConsumer(b *testing.B) {
	for name, options := range map[string][]redelivery.Option{
		"defaults": nil, "ack timeout": {redelivery.WithAckTimeout(time.Minute)},
	} {
		b.Run(name, func(b *testing.B) {
			inner := &endlessConsumer{ch: make(chan pulsar.ConsumerMessage, 1000)}
			c, err := redelivery.Wrap(inner, append(options, redelivery.WithLogger(slog.New(slog.DiscardHandler)))...)
			require.NoError(b, err)
			msgs := make([]pulsar.ConsumerMessage, 1000)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if n%1000 == 0 {
					b.StopTimer()
					for i := range msgs {
						inner.ch <- pulsar.ConsumerMessage{Consumer: inner, Message: message{id: pulsar.NewMessageID(1, int64(n+i), 0, 0)}}
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
