package worker_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/worker"
)

// BenchmarkLoop compares a Worker with Receive and Ack by hand, and one slow handler with eight. Messages are published before.
func BenchmarkLoop(b *testing.B) {
	fill := func(b *testing.B) *site {
		s := newSite(b)
		producer, err := s.client.CreateProducer(pulsar.ProducerOptions{Topic: s.topic})
		require.NoError(b, err)
		defer producer.Close()
		for range b.N {
			producer.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: make([]byte, 100)},
				func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
		}
		require.NoError(b, producer.FlushWithCtx(context.Background()))
		return s
	}
	opts := pulsar.ConsumerOptions{Type: pulsar.Shared}
	b.Run("by hand", func(b *testing.B) {
		c := fill(b).subscribe(opts)
		b.ResetTimer()
		for range b.N {
			msg, err := c.Receive(context.Background())
			require.NoError(b, err)
			require.NoError(b, c.Ack(msg))
		}
		b.StopTimer()
	})
	for _, c := range []struct {
		concurrency int
		takes       time.Duration
	}{{1, 0}, {8, 0}, {1, time.Millisecond}, {8, time.Millisecond}} {
		b.Run(fmt.Sprintf("worker/concurrency=%d/takes=%v", c.concurrency, c.takes), func(b *testing.B) {
			consumer := fill(b).subscribe(opts)
			ctx, cancel := context.WithCancel(context.Background())
			var n atomic.Int64
			w, err := worker.New(consumer, func(context.Context, pulsar.Message) error {
				if c.takes > 0 {
					time.Sleep(c.takes)
				}
				if n.Add(1) == int64(b.N) {
					cancel()
				}
				return nil
			}, worker.WithConcurrency(c.concurrency), worker.WithLogger(quiet))
			require.NoError(b, err)
			b.ResetTimer()
			require.NoError(b, w.Run(ctx))
			b.StopTimer()
		})
	}
}
