package worker_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// One more message waits in the Worker, and all others stay with the Consumer.
func TestNoMoreMessagesAreHandledThanTheLimiterAllows(t *testing.T) {
	for name, options := range map[string][]worker.Option{"": nil, "in key order": {worker.WithKeyOrder()}, "with a timeout": {worker.WithTimeout(time.Minute)}} {
		t.Run(name, func(t *testing.T) {
			virtually(t, orders, func(t *rig) {
				for n := range 6 {
					t.broker.Publish("orders", &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(n)), Key: fmt.Sprint(n)})
				}
				calls := newCalls()
				w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
					calls.note(msg)
					time.Sleep(3 * time.Second)
					return nil
				}, append(options, worker.WithConcurrency(5), worker.WithRateLimit(rate.NewLimiter(1, 2)))...)
				t.sleep(0)
				require.Equal(t, 3, w.Stats().InFlight) // two handlers, and the one that waits
				t.sleep(time.Hour)
				require.NoError(t, stop())
				const s = time.Second
				require.Equal(t, []time.Duration{0, 0, s, 2 * s, 3 * s, 4 * s}, calls.times())
				require.EqualValues(t, 6, w.Stats().Succeeded)
			}, redelivery.WithAckTimeout(10*time.Second))
		})
	}
}

// When the wait for the limit is over, the handler has the whole ack timeout.
func TestAckTimeoutIsRenewedAtTheRateLimit(t *testing.T) {
	virtually(t, withDeadLetters(2), func(t *rig) {
		t.publish("a")
		t.publish("b")
		calls := newCalls()
		_, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			calls.note(msg)
			time.Sleep(900 * time.Millisecond)
			return nil
		}, worker.WithRateLimit(rate.NewLimiter(rate.Every(time.Minute), 1)))
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []time.Duration{0, time.Minute}, calls.times())
	}, redelivery.WithAckTimeout(time.Second))
}

// The batch has more messages than the burst. Each retry takes tokens, too.
func TestBatchTakesATokenForEachMessage(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		for n := range 6 {
			t.publish(fmt.Sprint(n))
		}
		var got []string
		began := time.Now()
		_, stop := t.startBatch(worker.Batch{MaxMessages: 3}, func(_ context.Context, msgs []pulsar.Message) error {
			got = append(got, fmt.Sprint(time.Since(began).Truncate(100*time.Millisecond), " ", text(msgs)))
			if len(got) == 1 {
				return worker.BatchError{0: errTest, 1: errTest}
			}
			return nil
		}, worker.WithRateLimit(rate.NewLimiter(1, 2)), worker.WithLocalRetries(1, backoff.Fixed(0)), worker.WithConcurrency(1))
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []string{"1s 0 1 2", "3s 0 1", "6s 3 4 5"}, got)
	})
}

// Only the message that waits when the pause begins is handled. If the limiter then grants no tokens, the drain leaves
// the message that waits.
func TestMessageAtTheRateLimitIsHandledInAPauseAndLeftByADrain(t *testing.T) {
	for name, change := range map[string]func(*rate.Limiter){
		"a limit of nearly 0": func(l *rate.Limiter) { l.SetLimit(1e-9) },
		"a burst of 0":        func(l *rate.Limiter) { l.SetBurst(0) },
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, orders, func(t *rig) {
				limiter := rate.NewLimiter(1, 1)
				calls := newCalls()
				w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
					calls.note(msg)
					return nil
				}, worker.WithRateLimit(limiter), worker.WithConcurrency(2))
				t.publish("a", "b")
				t.sleep(0)
				w.Pause()
				t.publish("c")
				t.sleep(time.Minute)
				require.Equal(t, []time.Duration{0, time.Second}, calls.times())
				w.Resume()
				t.sleep(time.Second)
				require.Len(t, calls.times(), 3)
				change(limiter)
				t.publish("d", "e")
				t.sleep(time.Hour)
				require.LessOrEqual(t, len(calls.times()), 4) // one token may be left
				require.NoError(t, stop())
				require.EqualValues(t, 1, w.Stats().Left)
				require.Len(t, t.broker.Unacked(), 5-len(calls.times()))
			}, redelivery.WithAckTimeout(time.Second))
		})
	}
}

// The raised limit applies to messages that already wait.
func TestRaisedRateLimitAppliesAtOnce(t *testing.T) {
	for _, limit := range []rate.Limit{0, 1e-9, rate.Every(time.Hour)} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			virtually(t, orders, func(t *rig) {
				limiter := rate.NewLimiter(limit, 1)
				w, stop := t.start(succeed, worker.WithRateLimit(limiter))
				t.publish("a", "b", "c")
				t.sleep(time.Minute)
				require.EqualValues(t, 1, w.Stats().Succeeded)
				limiter.SetLimit(1000)
				t.sleep(2 * time.Second)
				require.EqualValues(t, 3, w.Stats().Succeeded)
				require.NoError(t, stop())
			})
		})
	}
}

func TestInvalidRateLimitIsRefused(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		for want, option := range map[string]worker.Option{
			"WithRateLimit is nil":               worker.WithRateLimit(nil),
			"the burst of WithRateLimit is 0":    worker.WithRateLimit(rate.NewLimiter(1, 0)),
			"the limit of WithRateLimit is -1":   worker.WithRateLimit(rate.NewLimiter(-1, 1)),
			"the limit of WithRateLimit is NaN,": worker.WithRateLimit(rate.NewLimiter(rate.Limit(math.NaN()), 1)),
		} {
			_, err := worker.New(t.consumer, succeed, option)
			require.ErrorIs(t, err, redelivery.ErrInvalidOption)
			require.ErrorContains(t, err, want)
		}
		_, err := worker.New(t.consumer, succeed, worker.WithRateLimit(rate.NewLimiter(rate.Inf, 0)))
		require.NoError(t, err)
	})
}
