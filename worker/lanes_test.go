package worker_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// publishKeyed sends messages whose key is the first letter of their payload; "-" means no key.
func (r *rig) publishKeyed(payloads ...string) {
	for _, payload := range payloads {
		r.broker.Publish("orders", &pulsar.ProducerMessage{Payload: []byte(payload), Key: strings.Trim(payload[:1], "-")})
	}
}

// diary notes which messages a handler got, and when.
type diary struct {
	mu    sync.Mutex
	began time.Time
	lines []string
}

func (d *diary) note(msg pulsar.Message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf("%v %s %d", time.Since(d.began), msg.Payload(), msg.RedeliveryCount()))
}

func (d *diary) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.lines...)
}

func TestMessagesOfAKeyAreHandledOneAfterAnother(t *testing.T) {
	policy := redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: time.Second, Max: time.Minute})
	for name, c := range map[string]struct {
		publish     []string
		concurrency int
		want        []string
		dead        []string
		stats       worker.Stats
	}{
		"a failed message keeps its key, and no other": {
			[]string{"a1 fails twice", "a2", "b1", "a3", "b2"}, 1,
			[]string{"0s a1 fails twice 0", "0s b1 0", "0s b2 0", "1s a1 fails twice 1", "3s a1 fails twice 2", "3s a2 0", "3s a3 0"},
			nil, worker.Stats{Succeeded: 5, Failed: 2},
		},
		"one of a key at a time": {
			[]string{"a1 slow", "a2 slow", "b1 slow", "a3"}, 4,
			[]string{"0s a1 slow 0", "0s b1 slow 0", "10s a2 slow 0", "20s a3 0"},
			nil, worker.Stats{Succeeded: 4},
		},
		"the last delivery lets its key go on": {
			[]string{"a1 fails", "a2"}, 2,
			[]string{"0s a1 fails 0", "1s a1 fails 1", "3s a1 fails 2", "3s a2 0"},
			[]string{"a1 fails: no luck"}, worker.Stats{Failed: 3, Succeeded: 1},
		},
		"a permanent error lets its key go on": {
			[]string{"a1 permanent", "a2"}, 2, []string{"0s a1 permanent 0", "0s a2 0"},
			[]string{"a1 permanent: no luck"}, worker.Stats{Permanent: 1, Succeeded: 1},
		},
		"retry after": {
			[]string{"a1 later", "a2"}, 1, []string{"0s a1 later 0", "1m0s a1 later 1", "1m0s a2 0"},
			nil, worker.Stats{Failed: 1, Succeeded: 2},
		},
		"without a key": {
			[]string{"-1 later", "-2", "-3 slow", "-4"}, 2,
			[]string{"0s -1 later 0", "0s -2 0", "0s -3 slow 0", "0s -4 0", "1m0s -1 later 1"},
			nil, worker.Stats{Failed: 1, Succeeded: 4},
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, withDeadLetters(3), func(t *rig) {
				t.publishKeyed(c.publish...)
				d := &diary{began: time.Now()}
				w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
					d.note(msg)
					_, what, _ := strings.Cut(string(msg.Payload()), " ")
					switch first := msg.RedeliveryCount() == 0; {
					case what == "fails", what == "fails twice" && msg.RedeliveryCount() < 2:
						return errTest
					case what == "permanent":
						return worker.Permanent(errTest)
					case what == "later" && first:
						return worker.RetryAfter(time.Minute, errTest)
					case what == "slow":
						time.Sleep(10 * time.Second)
					}
					return nil
				}, worker.WithKeyOrder(), worker.WithConcurrency(c.concurrency), worker.WithTimeout(time.Hour))
				t.sleep(time.Hour)
				require.NoError(t, stop())
				require.ElementsMatch(t, c.want, d.all())
				for i, line := range c.want[1:] { // messages of the same moment come in any order
					if at, _, _ := strings.Cut(line, " "); at != strings.Fields(c.want[i])[0] {
						require.Equal(t, at, strings.Fields(d.all()[i+1])[0])
					}
				}
				require.Equal(t, c.dead, t.letters())
				if name == "the last delivery lets its key go on" {
					require.Equal(t, "2", t.broker.Published(deadLetters)[0].Properties["REDELIVERY_COUNT"])
				}
				require.Equal(t, c.stats, w.Stats())
				require.Empty(t, t.broker.Unacked())
			}, policy, redelivery.WithAckTimeout(5*time.Second))
		})
	}
}

// Without a dead letter topic, a message with a permanent error is tried again, and its key waits.
func TestKeyWaitsForAFailedMessageWithoutADeadLetterTopic(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		t.publishKeyed("a1", "a2")
		d := &diary{began: time.Now()}
		_, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			d.note(msg)
			if msg.RedeliveryCount() < 2 && string(msg.Payload()) == "a1" {
				return worker.Permanent(errTest)
			}
			return nil
		}, worker.WithKeyOrder())
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []string{"0s a1 0", "1m0s a1 1", "2m0s a1 2", "2m0s a2 0"}, d.all())
	})
}

// Local retries count as attempts in the log of the Consumer, too.
func TestDeadLetterOfAKeyedMessageHasAllItsAttempts(t *testing.T) {
	virtually(t, withDeadLetters(4), func(t *rig) {
		t.publishKeyed("a1")
		_, stop := t.start(func(context.Context, pulsar.Message) error { return errTest }, worker.WithKeyOrder())
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Contains(t, t.linesWith("dead letter\"")[0], " attempts=4 ")
	})
}

func TestDrainLeavesMessagesThatWaitForTheirKeys(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		t.publishKeyed("a1", "a2", "a3", "b1", "b2")
		d := &diary{began: time.Now()}
		w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			d.note(msg)
			if string(msg.Payload()) == "b1" {
				return errTest
			}
			time.Sleep(10 * time.Second)
			return nil
		}, worker.WithKeyOrder(), worker.WithConcurrency(3))
		t.sleep(time.Second)
		require.Equal(t, 4, w.Stats().Waiting)
		began := time.Now()
		require.NoError(t, stop())
		require.Equal(t, 9*time.Second, time.Since(began))
		require.ElementsMatch(t, []string{"0s a1 0", "0s b1 0"}, d.all())
		require.Equal(t, worker.Stats{Left: 4, Succeeded: 1, Failed: 1}, w.Stats())
		require.Len(t, t.broker.Unacked(), 4)
	}, redelivery.WithAckTimeout(3*time.Second))
}

// If a batch had two messages of a key, the second might succeed before the first, which failed.
func TestBatchHasOneMessageOfAKey(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		t.publishKeyed("a1", "a2", "b1", "c1", "a3")
		var got []string
		_, stop := t.startBatch(worker.Batch{MaxMessages: 3}, func(_ context.Context, msgs []pulsar.Message) error {
			got = append(got, text(msgs))
			if msgs[0].RedeliveryCount() == 0 && string(msgs[0].Payload()) == "a1" {
				return worker.BatchError{0: errTest}
			}
			return nil
		}, worker.WithKeyOrder(), worker.WithConcurrency(1))
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []string{"a1 b1 c1", "a1", "a2", "a3"}, got)
	})
}

func TestPausedWorkerDoesNotTryAFailedMessageAgain(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		t.publishKeyed("a1", "a2", "b1")
		d := &diary{began: time.Now()}
		w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			d.note(msg)
			if msg.RedeliveryCount() == 0 && string(msg.Payload()) == "a1" {
				return errTest
			}
			return nil
		}, worker.WithKeyOrder(), worker.WithConcurrency(1))
		t.sleep(time.Second)
		w.Pause()
		t.sleep(time.Hour)
		require.Equal(t, []string{"0s a1 0", "0s b1 0"}, d.all())
		w.Resume()
		t.sleep(time.Second)
		require.NoError(t, stop())
		require.Equal(t, []string{"0s a1 0", "0s b1 0", "1h0m1s a1 1", "1h0m1s a2 0"}, d.all())
	}, redelivery.WithAckTimeout(3*time.Second))
}

// If a handler takes longer than the ack timeout, its message is delivered again, and waits in the lane. Once the
// handler has succeeded, the redelivery is not handled.
func TestRedeliveryDuringASlowHandlerIsNotHandledInKeyOrder(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		t.publishKeyed("a1", "a2")
		d := &diary{began: time.Now()}
		w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			d.note(msg)
			time.Sleep(10 * time.Second)
			return nil
		}, worker.WithKeyOrder(), worker.WithConcurrency(2))
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []string{"0s a1 0", "10s a2 0"}, d.all())
		require.Equal(t, worker.Stats{Succeeded: 2}, w.Stats())
	}, redelivery.WithAckTimeout(3*time.Second))
}

// After the Consumer was closed, no message overtakes an earlier one of its key that failed.
func TestKeyOrderHoldsAfterTheConsumerIsClosed(t *testing.T) {
	virtually(t, ofKind(pulsar.KeyShared), func(t *rig) {
		calls := newCalls()
		_, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			switch n := calls.note(msg); {
			case msg.Key() == "b": // it keeps the other slot busy
				time.Sleep(20 * time.Second)
				return nil
			case n == 2: // the retry of a1, while a2 waits
				time.Sleep(10 * time.Second)
				t.consumer.Close()
			}
			return errTest
		}, worker.WithConcurrency(2), worker.WithKeyOrder())
		t.publishKeyed("a1", "a2")
		t.sleep(65 * time.Second)
		t.publishKeyed("b1")
		t.sleep(time.Hour)
		require.ErrorContains(t, stop(), "the consumer is lost")
		require.Equal(t, []string{"a1", "a1", "b1"}, calls.what)
	})
}

// Waiting messages are dropped when they belong to another consumer. Slots get no message until all are dropped, so the
// time for dropping must grow only linearly with the number of messages.
func TestDroppingManyLostMessagesOfAKeyTakesLinearTime(t *testing.T) {
	cpu := func() time.Duration { // virtual time does not show how long work takes
		var used syscall.Rusage
		require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
		return time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	const few, many = 5_000, 40_000
	took := map[int]time.Duration{}
	for _, n := range []int{few, many} {
		opts := orders
		opts.Type = pulsar.Failover
		virtually(t, opts, func(t *rig) {
			t.logger = quiet
			w, stop := t.start(func(context.Context, pulsar.Message) error { return worker.RetryAfter(time.Minute, errTest) },
				worker.WithKeyOrder(), worker.WithConcurrency(2))
			for range n {
				t.publishKeyed("a")
			}
			t.sleep(10 * time.Second)
			require.Equal(t, n, w.Stats().Waiting)
			other, err := redelivery.Subscribe(t.broker, opts, redelivery.WithLogger(quiet))
			require.NoError(t, err)
			defer other.Close()
			t.broker.Elect()
			began := cpu()
			t.sleep(time.Minute)
			took[n] = cpu() - began
			require.Zero(t, w.Stats().Waiting)
			require.EqualValues(t, n, w.Stats().Lost)
			require.NoError(t, stop())
		}, redelivery.WithMemoryLimit(1<<30), redelivery.WithLogger(quiet))
	}
	require.Less(t, took[many], 3*many/few*max(took[few], 20*time.Millisecond))
}
