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

// With two local retries, up to three calls in a row are one attempt.
func TestCallsOfLocalRetriesAreOneAttempt(t *testing.T) {
	const second = time.Second
	all := []time.Duration{0, second, 3 * second, 63 * second, 64 * second, 66 * second}
	for name, c := range map[string]struct {
		fail  error
		fails int // how many calls fail before one succeeds
		pause backoff.RedeliveryBackoff
		want  []time.Duration
		stats worker.Stats
	}{
		"the last call succeeds": {errTest, 2, nil, all[:3], worker.Stats{Succeeded: 1}},
		"all fail":               {errTest, 9, nil, all, worker.Stats{Failed: 2}},
		"the next delivery":      {errTest, 4, nil, all[:5], worker.Stats{Succeeded: 1, Failed: 1}},
		"a permanent error":      {worker.Permanent(errTest), 9, nil, all[:1], worker.Stats{Permanent: 1}},
		"RetryAfter":             {worker.RetryAfter(5*second, errTest), 1, nil, []time.Duration{0, 5 * second}, worker.Stats{Succeeded: 1, Failed: 1}},
		"Snooze":                 {worker.Snooze(5 * second), 1, nil, []time.Duration{0, 5 * second}, worker.Stats{Succeeded: 1, Snoozed: 1}},
		"a handler that panics":  {nil, 2, nil, all[:3], worker.Stats{Succeeded: 1, Panics: 2}},
		"without a pause":        {errTest, 2, backoff.Fixed(0), []time.Duration{0, 0, 0}, worker.Stats{Succeeded: 1}},
	} {
		for order, options := range map[string][]worker.Option{"": nil, " in key order": {worker.WithKeyOrder()}, " with a timeout": {worker.WithTimeout(time.Minute)}} {
			t.Run(name+order, func(t *testing.T) {
				pause := c.pause
				if pause == nil {
					pause = backoff.Exponential{Min: second}
				}
				virtually(t, withDeadLetters(2), func(t *rig) {
					calls := newCalls()
					w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
						n := calls.note(msg)
						require.EqualValues(t, btoi(calls.at[n-1] >= 5*second && c.stats.Snoozed == 0), msg.RedeliveryCount())
						switch {
						case n > c.fails:
							return nil
						case c.fail == nil:
							panic("no")
						}
						return c.fail
					}, append(options, worker.WithLocalRetries(2, pause))...)
					t.broker.Publish("orders", &pulsar.ProducerMessage{Payload: []byte("tea"), Key: "tea"})
					t.sleep(time.Hour)
					require.NoError(t, stop())
					require.Equal(t, c.want, calls.times())
					require.Equal(t, c.stats, w.Stats())
					require.Empty(t, t.broker.Unacked())
				}, redelivery.WithNackRedeliveryDelay(time.Minute), redelivery.WithAckTimeout(500*time.Millisecond))
			})
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestLocalRetriesHandleOnlyFailedMessagesOfABatch(t *testing.T) {
	for name, c := range map[string]struct {
		errs []error
		want []string
	}{
		"each": {[]error{worker.BatchError{0: errTest, 2: errTest}, worker.BatchError{1: errTest}, nil},
			[]string{"0s a b c", "1s a c", "3s c"}},
		"all": {[]error{errTest, errTest, errTest, nil}, []string{"0s a b c", "1s a b c", "3s a b c", "1m3s a b c"}},
		"then halved": {[]error{errTest, errTest, errTest, errTest, errTest, errTest, nil, nil},
			[]string{"0s a b c", "1s a b c", "3s a b c", "1m3s a b c", "1m4s a b c", "1m6s a b c", "1m6s a b", "1m6s c"}},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, orders, func(t *rig) {
				for _, payload := range []string{"a", "b", "c"} {
					t.publish(payload)
				}
				var got []string
				began := time.Now()
				_, stop := t.startBatch(worker.Batch{MaxMessages: 3}, func(_ context.Context, msgs []pulsar.Message) error {
					got = append(got, fmt.Sprint(time.Since(began), " ", text(msgs)))
					return c.errs[len(got)-1]
				}, worker.WithLocalRetries(2, backoff.Exponential{Min: time.Second}), worker.WithConcurrency(1))
				t.sleep(time.Hour)
				require.NoError(t, stop())
				require.Equal(t, c.want, got)
				require.Empty(t, t.broker.Unacked())
			}, redelivery.WithNackRedeliveryDelay(time.Minute))
		})
	}
}

// The drain begins no local retries.
func TestDrainLeavesMessagesThatWaitForALocalRetry(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		calls := newCalls()
		w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			if calls.note(msg) == 2 {
				time.Sleep(time.Second)
			}
			return errTest
		}, worker.WithLocalRetries(2, backoff.Fixed(time.Minute)), worker.WithConcurrency(2))
		t.publish("waits")
		t.sleep(time.Second)
		t.publish("is handled")
		t.sleep(0)
		require.NoError(t, stop())
		require.Equal(t, worker.Stats{Left: 1, Failed: 1}, w.Stats())
		require.Len(t, calls.times(), 2)
		require.Len(t, t.broker.Unacked(), 2)
	}, redelivery.WithAckTimeout(500*time.Millisecond))
}

// A probe, which tries a message in an outage, has no local retries.
func TestOutageCountsOnlyTheLastCallOfLocalRetries(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		calls := newCalls()
		w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			if n := calls.note(msg); n == 2 || n > 6 {
				return nil
			}
			return errTest
		}, worker.WithLocalRetries(1, backoff.Fixed(0)), worker.WithPauseOnFailure(1, 1, backoff.Fixed(time.Second)), worker.WithConcurrency(1))
		t.publish("a")
		t.sleep(0)
		require.False(t, w.Stats().Outage)
		t.publish("b")
		t.sleep(0)
		require.True(t, w.Stats().Outage)
		t.sleep(time.Minute)
		require.NoError(t, stop())
		for n, at := range []time.Duration{0, 0, 0, 0, time.Second, 2 * time.Second} {
			require.InDelta(t, at.Seconds(), calls.times()[n].Seconds(), 0.1)
		}
	})
}

func TestInvalidLocalRetriesAreRefused(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		for want, option := range map[string]worker.Option{
			"WithLocalRetries' n is 0, want 1 or more": worker.WithLocalRetries(0, backoff.Fixed(0)),
			"WithLocalRetries' pause: backoff: policy": worker.WithLocalRetries(1, nil),
		} {
			_, err := worker.New(t.consumer, succeed, option)
			require.ErrorIs(t, err, redelivery.ErrInvalidOption)
			require.ErrorContains(t, err, want)
		}
	})
}
