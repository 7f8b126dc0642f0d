package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// One message of each producer's batch fails and waits for long: the broker stops after 50 batches of 1,000, with and
// without key order. Stats and Observer.Blocked report that. With a retry topic the waiting messages are moved there,
// and all others are handled.
func TestBrokerStopsSendingWhenManyBatchesHaveAWaitingMessage(t *testing.T) {
	t.Parallel()
	const batches, each = 60, 1000
	for name, c := range map[string]struct {
		worker   []worker.Option
		consumer []redelivery.Option
		all      bool
	}{
		"plain nacks":              {nil, nil, false},
		"by key":                   {[]worker.Option{worker.WithKeyOrder()}, nil, false},
		"plain nacks, retry topic": {nil, []redelivery.Option{redelivery.WithReconsumeBackoff(backoff.Fixed(time.Hour))}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			if s.inProcess != nil {
				t.Skip("180,000 messages: with PULSAR_URL")
			}
			opts := pulsar.ConsumerOptions{Type: pulsar.Shared}
			first := s.subscribe(opts)
			first.Close()
			publishBatches(t, s, batches, each)
			var told atomic.Int64
			consumer := s.subscribe(opts, append(c.consumer, redelivery.WithNackRedeliveryDelay(time.Hour),
				redelivery.WithObserver(redelivery.Observer{Blocked: func(b redelivery.Blocked) { told.Store(int64(b.Unacknowledged)) }}))...)
			w, err := worker.New(consumer, func(_ context.Context, msg pulsar.Message) error {
				if msg.Key() == "7" {
					return errTest
				}
				return nil
			}, append(c.worker, worker.WithConcurrency(4), worker.WithLogger(quiet))...)
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(context.Background())
			returned := make(chan error, 1)
			go func() { returned <- w.Run(ctx) }()
			if c.all {
				require.Eventually(t, func() bool { return w.Stats().Succeeded == batches*(each-1) }, time.Minute, 10*time.Millisecond)
				require.Positive(t, told.Load())
				require.False(t, consumer.Stats().Blocked)
			} else {
				require.Eventually(t, func() bool { return consumer.Stats().Blocked }, time.Minute, 10*time.Millisecond)
				time.Sleep(2 * time.Second)
				require.True(t, consumer.Stats().Blocked)
				require.Less(t, w.Stats().Succeeded, uint64(batches*(each-1)))
			}
			t.Logf("%d of %d succeeded, %d unacknowledged", w.Stats().Succeeded, batches*each, told.Load())
			cancel()
			require.NoError(t, waittest.Next(t, returned))
		})
	}
}
