package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

var allKinds = []pulsar.SubscriptionType{pulsar.Exclusive, pulsar.Shared, pulsar.Failover, pulsar.KeyShared}

// ofKind returns options with a subscription type, and with dead letters after two deliveries.
func ofKind(kind pulsar.SubscriptionType) pulsar.ConsumerOptions {
	opts := withDeadLetters(2)
	opts.Type = kind
	return opts
}

// snoozed has a line for each call of the handler: the message, the time and the count.
type snoozed []string

func (s *snoozed) note(began time.Time, msg pulsar.Message) int {
	*s = append(*s, fmt.Sprintf("%s %v %d", msg.Payload(), time.Since(began), msg.RedeliveryCount()))
	return len(*s)
}

// Only failures raise the redelivery count and the delay, and count toward MaxDeliveries.
func TestSnoozeDoesNotCount(t *testing.T) {
	policy := redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: time.Minute})
	for _, kind := range allKinds {
		for name, options := range map[string][]worker.Option{
			"": nil, "in key order": {worker.WithKeyOrder()},
			"with a classifier": {worker.WithClassifier(func(err error) error {
				if errors.Is(err, errTest) {
					return err
				}
				return worker.Permanent(fmt.Errorf("classified: %w", err)) // this classifier does not distinguish Snooze
			})},
			"by a classifier": {worker.WithClassifier(func(err error) error {
				if err.Error() == "snoozed for 1s" {
					return worker.Snooze(time.Second)
				}
				return err
			})},
		} {
			t.Run(fmt.Sprint(kind, name), func(t *testing.T) {
				virtually(t, ofKind(kind), func(t *rig) {
					began, got := time.Now(), snoozed{}
					w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
						switch got.note(began, msg) {
						case 4:
							return errTest
						case 8:
							return errTest // at its last delivery
						}
						return worker.Snooze(time.Second)
					}, append(options, worker.WithConcurrency(1), worker.WithMaxAge(time.Hour))...)
					t.broker.Publish("orders", &pulsar.ProducerMessage{Payload: []byte("tea"), Key: "tea"})
					t.sleep(time.Hour)
					require.NoError(t, stop())
					require.Equal(t, snoozed{"tea 0s 0", "tea 1s 0", "tea 2s 0", "tea 3s 0", "tea 1m3s 1", "tea 1m4s 1", "tea 1m5s 1", "tea 1m6s 1"}, got)
					require.Equal(t, []string{"tea: no luck"}, t.letters())
					require.Equal(t, worker.Stats{Snoozed: 6, Failed: 2}, w.Stats())
				}, policy, redelivery.WithAckTimeout(500*time.Millisecond))
			})
		}
	}
}

// Other keys do not wait.
func TestKeyOfASnoozedMessageWaits(t *testing.T) {
	virtually(t, ofKind(pulsar.KeyShared), func(t *rig) {
		began, got := time.Now(), snoozed{}
		_, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			if got.note(began, msg); string(msg.Payload()) == "a1" && time.Since(began) < 2*time.Second {
				return worker.Snooze(time.Second)
			}
			return nil
		}, worker.WithKeyOrder(), worker.WithConcurrency(1))
		for _, payload := range []string{"a1", "a2", "b1"} {
			t.broker.Publish("orders", &pulsar.ProducerMessage{Payload: []byte(payload), Key: payload[:1]})
		}
		t.sleep(time.Minute)
		require.NoError(t, stop())
		require.Equal(t, snoozed{"a1 0s 0", "b1 0s 0", "a1 1s 0", "a1 2s 0", "a2 2s 0"}, got)
	}, redelivery.WithAckTimeout(500*time.Millisecond))
}

// One message of a batch is snoozed, or all of them.
func TestSnoozeInABatchDelaysItsMessages(t *testing.T) {
	for _, kind := range allKinds {
		virtually(t, ofKind(kind), func(t *rig) {
			for _, payload := range []string{"a", "b", "c"} {
				t.publish(payload)
			}
			began, got := time.Now(), []string{}
			w, stop := t.startBatch(worker.Batch{}, func(_ context.Context, msgs []pulsar.Message) error {
				got = append(got, fmt.Sprint(time.Since(began).Truncate(time.Second), " ", text(msgs), " ", msgs[0].RedeliveryCount()))
				switch len(got) {
				case 1:
					return worker.BatchError{1: worker.Snooze(time.Second), 2: errTest}
				case 2:
					return worker.Snooze(time.Second)
				}
				return nil
			}, worker.WithConcurrency(1))
			t.sleep(time.Hour)
			require.NoError(t, stop())
			require.Equal(t, []string{"0s a b c 0", "1s b 0", "2s b 0", "1m0s c 1"}, got)
			require.Equal(t, worker.Stats{Snoozed: 2, Failed: 1, Succeeded: 3}, w.Stats())
		}, redelivery.WithAckTimeout(500*time.Millisecond))
	}
}

// After the drain timeout a snoozed message is left to the broker.
func TestSnoozeNeitherBeginsNorEndsAnOutage(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		calls := newCalls()
		w, stop := t.start(func(ctx context.Context, msg pulsar.Message) error {
			switch n := calls.note(msg); {
			case n == 1, n == 3:
				return worker.Snooze(time.Hour)
			case n == 2:
				return errTest
			}
			<-ctx.Done()
			return worker.Snooze(time.Hour)
		}, worker.WithConcurrency(1), worker.WithPauseOnFailure(1, 1, backoff.Fixed(time.Second)))
		t.publish("a")
		t.sleep(0)
		require.False(t, w.Stats().Outage)
		t.publish("b")
		t.publish("c")
		t.sleep(time.Second)
		require.True(t, w.Stats().Outage)
		t.sleep(1100 * time.Millisecond)
		require.Equal(t, []string{"a", "b", "c", "b"}, calls.what)
		require.NoError(t, stop())
		require.EqualValues(t, 1, w.Stats().Left)
		require.EqualValues(t, 2, w.Stats().Snoozed)
		require.Len(t, t.broker.Unacked(), 3)
	})
}

func TestErrorOfSnoozeNamesItsDelay(t *testing.T) {
	require.EqualError(t, worker.Snooze(time.Second), "snoozed for 1s")
	require.EqualError(t, worker.Snooze(-time.Second), "snoozed for 0s")
}
