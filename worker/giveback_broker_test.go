package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// Messages that a consumer gives back go to another consumer, with their counts unchanged. Messages that the first
// consumer settled do not come again. The first consumer can still receive new messages.
func TestGiveBackReturnsUnsettledMessagesUncounted(t *testing.T) {
	t.Parallel()
	for _, kind := range []pulsar.SubscriptionType{pulsar.Shared, pulsar.KeyShared} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			const n = 200
			s := newSite(t)
			opts := pulsar.ConsumerOptions{Type: kind}
			first := s.subscribe(opts, redelivery.WithNackRedeliveryDelay(300*time.Millisecond))
			s.publish(false, numbers(0, n)...)
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			acked := map[string]bool{}
			for range n / 4 {
				msg, err := first.Receive(ctx)
				require.NoError(t, err)
				require.NoError(t, first.Ack(msg))
				acked[string(msg.Payload())] = true
			}
			require.NoError(t, first.GiveBack())
			require.NoError(t, first.GiveBack())
			second := s.subscribe(opts)
			for len(acked) < n {
				msg, err := second.Receive(ctx)
				require.NoError(t, err)
				require.Zero(t, msg.RedeliveryCount())
				require.False(t, acked[string(msg.Payload())], "acknowledged before")
				require.NoError(t, second.Ack(msg))
				acked[string(msg.Payload())] = true
			}
			second.Close()
			s.publish(false, "again")
			for want := range uint32(3) {
				msg, err := first.Receive(ctx)
				require.NoError(t, err)
				require.Equal(t, "again", string(msg.Payload()))
				require.Equal(t, want, msg.RedeliveryCount())
				if want < 2 {
					first.Nack(msg)
				} else {
					require.NoError(t, first.Ack(msg))
				}
			}
			first.Close()
			require.ErrorIs(t, first.GiveBack(), redelivery.ErrClosed)
		})
	}
	s := newSite(t)
	require.ErrorIs(t, s.subscribe(pulsar.ConsumerOptions{Type: pulsar.Exclusive}).GiveBack(), errors.ErrUnsupported)
}

func TestPausedWorkerLeavesMessagesToAnother(t *testing.T) {
	t.Parallel()
	const n = 600
	for _, kind := range []pulsar.SubscriptionType{pulsar.Shared, pulsar.KeyShared} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			s := newSite(t)
			opts := pulsar.ConsumerOptions{Type: kind, DLQ: &pulsar.DLQPolicy{MaxDeliveries: 5}}
			var mu sync.Mutex
			handled, counts := map[string]int{}, uint32(0)
			start := func() *worker.Worker {
				consumer := s.subscribe(opts, redelivery.WithNackRedeliveryDelay(time.Second))
				w, err := worker.New(consumer, func(_ context.Context, msg pulsar.Message) error {
					time.Sleep(time.Millisecond)
					mu.Lock()
					defer mu.Unlock()
					handled[string(msg.Payload())]++
					counts = max(counts, msg.RedeliveryCount())
					return nil
				}, worker.WithConcurrency(8), worker.WithLogger(quiet))
				require.NoError(t, err)
				runToTheEnd(t, w)
				return w
			}
			paused := start()
			start()
			s.publish(false, numbers(0, n/2)...)
			paused.Pause()
			s.publish(false, numbers(n/2, n)...)
			require.Eventually(t, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(handled) == n
			}, 20*time.Second, 10*time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			t.Logf("%d handled, the highest count is %d", len(handled), counts)
			require.LessOrEqual(t, counts, uint32(2))
			require.Empty(t, s.letters())
		})
	}
}

// runToTheEnd runs a Worker until the test ends.
func runToTheEnd(t *testing.T, w *worker.Worker) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

func numbers(from, to int) (all []string) {
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

// The handlers of only one Worker fail, as if its computer were broken.
func TestWorkerWhoseHandlersAllFailLeavesMessagesToAnother(t *testing.T) {
	t.Parallel()
	const n = 600
	for _, kind := range []pulsar.SubscriptionType{pulsar.Shared, pulsar.KeyShared} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			s := newSite(t)
			opts := pulsar.ConsumerOptions{Type: kind, DLQ: &pulsar.DLQPolicy{MaxDeliveries: 5}}
			var mu sync.Mutex
			handled, tries := map[string]int{}, 0
			start := func(handler worker.Handler) *worker.Worker {
				w, err := worker.New(s.subscribe(opts, redelivery.WithNackRedeliveryDelay(time.Second)), handler, worker.WithConcurrency(8),
					worker.WithLogger(quiet), worker.WithPauseOnFailure(20, 0.9, backoff.Exponential{Min: time.Second, Max: 10 * time.Second}))
				require.NoError(t, err)
				runToTheEnd(t, w)
				return w
			}
			broken := start(func(context.Context, pulsar.Message) error {
				time.Sleep(time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				tries++
				return errTest
			})
			start(func(_ context.Context, msg pulsar.Message) error {
				time.Sleep(time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				handled[string(msg.Payload())]++
				return nil
			})
			s.publish(false, numbers(0, n)...)
			began := time.Now()
			assert.Eventually(t, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(handled) == n
			}, 20*time.Second, 10*time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			t.Logf("%d handled after %v, %d tries of the Worker in an outage", len(handled), time.Since(began).Round(100*time.Millisecond), tries)
			require.True(t, broken.Stats().Outage)
			require.Empty(t, s.letters())
			for payload, times := range handled {
				require.Equal(t, 1, times, payload)
			}
		})
	}
}
