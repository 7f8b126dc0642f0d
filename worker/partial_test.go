package worker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// TestHalfDown has half of the keys fail for two minutes, with plain nacks and with a pause on failure.
func TestHalfDown(t *testing.T) {
	pause := backoff.Exponential{Min: time.Second, Max: 10 * time.Second}
	plain := runHalfDown(t)
	low := runHalfDown(t, worker.WithPauseOnFailure(20, 0.5, pause))
	high := runHalfDown(t, worker.WithPauseOnFailure(20, 0.9, pause))
	t.Logf("the healthy half succeeded %d times with plain nacks, %d with a ratio of 0.5, %d with 0.9", plain, low, high)
	require.Greater(t, high, plain*95/100)
	require.Greater(t, low, 100)
}

// runHalfDown returns how many messages of the healthy half succeed while the other fails.
func runHalfDown(t *testing.T, options ...worker.Option) (succeeded int) {
	virtually(t, withDeadLetters(50), func(t *rig) {
		began := time.Now()
		healthy := newCalls()
		_, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			time.Sleep(5 * time.Millisecond)
			if time.Since(began) >= 2*time.Minute {
				return nil
			}
			if msg.Key() == "bad" {
				return errTest
			}
			healthy.note(msg)
			return nil
		}, append(options, worker.WithConcurrency(8), worker.WithLogger(quiet))...)
		for n := range 4000 {
			key := []string{"good", "bad"}[n%2]
			t.broker.Publish("orders", &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(n)), Key: key})
			time.Sleep(30 * time.Millisecond)
		}
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Empty(t, t.broker.Unacked())
		succeeded = len(healthy.times())
	}, redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: time.Second, Max: time.Minute}),
		redelivery.WithAckTimeout(30*time.Second), redelivery.WithLogger(quiet))
	return succeeded
}

// A message that was with its handler when an outage began, and succeeds, ends it.
func TestSuccessEndsAnOutage(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		t.publish("good")
		t.publish("bad")
		w, stop := t.start(func(ctx context.Context, msg pulsar.Message) error {
			if string(msg.Payload()) == "good" {
				time.Sleep(time.Second)
			}
			return failBad(ctx, msg)
		}, worker.WithConcurrency(2), worker.WithPauseOnFailure(1, 1, backoff.Fixed(time.Hour)))
		t.sleep(100 * time.Millisecond)
		require.True(t, w.Stats().Outage)
		t.publish("good")
		t.sleep(2 * time.Second)
		require.EqualValues(t, 2, w.Stats().Succeeded)
		require.NoError(t, stop())
	})
}
