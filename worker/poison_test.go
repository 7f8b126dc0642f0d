package worker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// failBad is a handler that fails on messages whose payloads begin with bad.
func failBad(_ context.Context, msg pulsar.Message) error {
	if strings.HasPrefix(string(msg.Payload()), "bad") {
		return errTest
	}
	return nil
}

// Messages that always fail fill the window and all slots. They become dead letters, and the messages behind them are
// handled.
func TestMessagesBehindAWindowOfPoisonAreHandled(t *testing.T) {
	for _, concurrency := range []int{1, 8} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			virtually(t, withDeadLetters(3), func(t *rig) {
				for n := range 30 {
					t.publish(fmt.Sprint("bad", n))
				}
				for n := range 600 {
					t.publish(fmt.Sprint("good", n))
				}
				w, stop := t.start(failBad, worker.WithConcurrency(concurrency),
					worker.WithPauseOnFailure(20, 0.5, backoff.Exponential{Min: time.Second, Max: 10 * time.Second}))
				t.sleep(10 * time.Minute)
				require.EqualValues(t, 600, w.Stats().Succeeded)
				t.sleep(50 * time.Minute)
				require.Len(t, t.letters(), 30)
				require.NoError(t, stop())
				require.Empty(t, t.broker.Unacked())
			}, redelivery.WithAckTimeout(30*time.Second))
		})
	}
}

// The topic is quiet, so no other message succeeds between the failures.
func TestOneMessageThatAlwaysFailsIsNoOutage(t *testing.T) {
	virtually(t, withDeadLetters(40), func(t *rig) {
		for n := range 20 {
			t.publish(fmt.Sprint("good", n))
		}
		t.publish("bad")
		w, stop := t.start(failBad, worker.WithConcurrency(1),
			worker.WithPauseOnFailure(20, 0.5, backoff.Exponential{Min: time.Second, Max: 10 * time.Second}))
		t.sleep(time.Hour)
		require.Equal(t, []string{"bad: no luck"}, t.letters())
		require.False(t, strings.Contains(t.log.String(), "most messages fail"))
		require.NoError(t, stop())
		require.EqualValues(t, 40, w.Stats().Failed)
	})
}

// Probes, the tries in an outage, first take messages that have not failed yet, then all in turn. The third probe of a
// message counts as an attempt.
func TestProbesTryFreshMessagesFirstThenAllInTurn(t *testing.T) {
	virtually(t, exclusive(9), func(t *rig) {
		for _, payload := range []string{"a", "b", "c"} {
			t.publish(payload)
		}
		calls := newCalls()
		w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			calls.note(msg)
			time.Sleep(time.Millisecond)
			return errTest
		}, worker.WithConcurrency(2), worker.WithPauseOnFailure(1, 1, backoff.Fixed(time.Second)))
		t.sleep(7500 * time.Millisecond)
		require.NoError(t, stop())
		require.ElementsMatch(t, []string{"a", "b"}, calls.what[:2])
		require.Equal(t, "c", calls.what[2])
		require.ElementsMatch(t, []string{"a", "b"}, calls.what[3:5])
		require.Equal(t, "c", calls.what[5])
		require.ElementsMatch(t, []string{"a", "b"}, calls.what[6:8])
		require.Equal(t, []string{"c"}, calls.what[8:])
		require.EqualValues(t, 1, w.Stats().Failed)
	}, redelivery.WithNackRedeliveryDelay(time.Hour))
}

// 1,000 rows are written in batches of 100. A bad row makes its whole batch fail.
func TestOneBadRowOfABatchBecomesTheOnlyDeadLetter(t *testing.T) {
	pause := worker.WithPauseOnFailure(20, 0.5, backoff.Exponential{Min: time.Second, Max: 10 * time.Second})
	for name, options := range map[string][]worker.Option{"plain": nil, "with a pause": {pause}, "by key": {pause, worker.WithKeyOrder()}} {
		t.Run(name, func(t *testing.T) {
			virtually(t, withDeadLetters(3), func(t *rig) {
				for n := range 1000 {
					payload := fmt.Sprint("row", n)
					if n == 20 {
						payload = "bad"
					}
					t.broker.Publish("orders", &pulsar.ProducerMessage{Payload: []byte(payload), Key: payload})
				}
				calls := newCalls()
				w, stop := t.startBatch(worker.Batch{}, func(ctx context.Context, msgs []pulsar.Message) error {
					calls.note(msgs[0])
					for _, msg := range msgs {
						if err := failBad(ctx, msg); err != nil {
							return err
						}
					}
					return nil
				}, append(options, worker.WithConcurrency(4))...)
				t.sleep(time.Hour)
				require.EqualValues(t, 999, w.Stats().Succeeded)
				require.Equal(t, []string{"bad: no luck"}, t.letters())
				require.False(t, strings.Contains(t.log.String(), "most messages fail"))
				require.NoError(t, stop())
				require.Empty(t, t.broker.Unacked())
				require.LessOrEqual(t, len(calls.what), 40)
			}, redelivery.WithAckTimeout(30*time.Second))
		})
	}
}

func TestOutageTriesEachMessageOfABatch(t *testing.T) {
	virtually(t, exclusive(5), func(t *rig) {
		for _, payload := range []string{"bad", "a", "b"} {
			t.publish(payload)
		}
		var got []string
		_, stop := t.startBatch(worker.Batch{MaxMessages: 3}, func(ctx context.Context, msgs []pulsar.Message) error {
			got = append(got, text(msgs))
			return failBad(ctx, msgs[0])
		}, worker.WithPauseOnFailure(1, 1, backoff.Fixed(time.Second)), worker.WithConcurrency(1))
		t.sleep(10 * time.Second)
		require.NoError(t, stop())
		require.Equal(t, []string{"bad a b", "bad", "a", "b bad"}, got[:4])
	})
}

// The handler of a probe ignores the end of its context.
func TestOtherMessagesAreTriedWhileAProbeHangs(t *testing.T) {
	for name, c := range map[string]struct {
		options []worker.Option
		next    time.Duration // how long after the stuck message the next one is tried
	}{
		"without a timeout": {nil, 30 * time.Second},
		"with a timeout":    {[]worker.Option{worker.WithTimeout(time.Second)}, 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, orders, func(t *rig) {
				t.publish("a")
				release := make(chan struct{})
				calls := newCalls()
				w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
					switch n := calls.note(msg); {
					case string(msg.Payload()) == "stuck":
						<-release
					case n <= 2:
						return errTest
					}
					return nil
				}, append(c.options, worker.WithConcurrency(2), worker.WithPauseOnFailure(1, 1, backoff.Fixed(time.Second)))...)
				t.sleep(time.Millisecond)
				t.publish("stuck")
				t.sleep(time.Hour)
				defer func() { require.NoError(t, stop()) }()
				defer close(release)
				require.Equal(t, []string{"a", "stuck", "a"}, calls.what)
				require.InDelta(t, (2*time.Second + c.next).Seconds(), calls.times()[2].Seconds(), 0.1)
				require.False(t, w.Stats().Outage)
			})
		})
	}
}

// The pause before other messages are tried comes from the pause policy.
func TestRetryAfterInAnOutageDelaysOnlyItsMessage(t *testing.T) {
	for _, c := range []struct {
		after       time.Duration
		concurrency int
		back        time.Duration // when the message is handled again
	}{
		{24 * time.Hour, 1, 24 * time.Hour},
		{24 * time.Hour, 2, 24 * time.Hour},
		{30 * time.Second, 1, 30 * time.Second},
	} {
		t.Run(fmt.Sprint(c.after, c.concurrency), func(t *testing.T) {
			virtually(t, withDeadLetters(3), func(t *rig) {
				t.publish("later")
				calls := newCalls()
				_, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
					if calls.note(msg) == 1 {
						return worker.RetryAfter(c.after, errTest)
					}
					return nil
				}, worker.WithConcurrency(c.concurrency), worker.WithPauseOnFailure(1, 1, backoff.Fixed(time.Second)))
				t.sleep(100 * time.Millisecond)
				t.publish("good")
				t.sleep(25 * time.Hour)
				require.NoError(t, stop())
				require.Equal(t, []string{"later", "good", "later"}, calls.what)
				require.LessOrEqual(t, calls.times()[1], 1100*time.Millisecond)
				require.Equal(t, c.back, calls.times()[2])
			}, redelivery.WithAckTimeout(30*time.Second))
		})
	}
}
