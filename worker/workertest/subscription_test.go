package workertest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
	"github.com/pulsar-redelivery/redelivery/worker/workertest"
)

// messages returns n messages with one payload.
func messages(n int, payload string) (msgs []*pulsar.ProducerMessage) {
	for range n {
		msgs = append(msgs, message(payload))
	}
	return msgs
}

// payloads returns a row for each call: its time, its Worker and its payload.
func payloads(calls workertest.Attempts) (rows []string) {
	for _, a := range calls {
		rows = append(rows, fmt.Sprintf("%v %d %s", a.At, a.Worker, a.Message.Payload))
	}
	return rows
}

// Messages that always fail fill the window of WithPauseOnFailure. They become dead letters, and the messages behind
// them are handled.
func TestPoisonDoesNotStopAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		orders := dead3.Subscription(t)
		orders.Start(handle, worker.WithConcurrency(8),
			worker.WithPauseOnFailure(20, 0.5, backoff.Exponential{Max: 10 * time.Second}))
		orders.Publish(messages(30, "down")...)
		orders.Publish(messages(600, "good")...)
		orders.Settle(10 * time.Minute)
		for i, attempts := range orders.Attempts() {
			last := attempts[len(attempts)-1]
			require.Equal(t, i < 30, last.Dead, "message %d", i)
			require.Equal(t, i >= 30, last.Acked, "message %d", i)
		}
	})
}

// The handler cannot say which of a thousand rows is bad. The bad row costs a few more calls.
func TestOneBadRowOfABatchBecomesTheOnlyDeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := messages(1000, "good")
		rows[20] = message("bad row")
		orders := dead3.Subscription(t)
		calls := 0
		orders.StartBatch(func(_ context.Context, msgs []pulsar.Message) error {
			calls++
			if slices.ContainsFunc(msgs, func(msg pulsar.Message) bool { return string(msg.Payload()) == "bad row" }) {
				return errDown
			}
			return nil
		}, worker.Batch{}, worker.WithConcurrency(1),
			worker.WithPauseOnFailure(20, 0.5, backoff.Exponential{Max: 10 * time.Second}))
		orders.Publish(rows...)
		orders.Settle(10 * time.Minute)
		for i, attempts := range orders.Attempts() {
			require.Equal(t, i == 20, attempts[len(attempts)-1].Dead, "row %d", i)
		}
		require.LessOrEqual(t, calls, 40)
	})
}

// Another Worker becomes the active one while messages of a key wait. No message succeeds twice.
func TestKeysKeepTheirOrderOverAChangeOfOwner(t *testing.T) {
	setup := workertest.Setup{
		Consumer:   pulsar.ConsumerOptions{Type: pulsar.Failover},
		Redelivery: []redelivery.Option{redelivery.WithNackRedeliveryDelay(3 * time.Second)},
		Worker:     []worker.Option{worker.WithKeyOrder(), worker.WithConcurrency(4)},
	}
	synctest.Test(t, func(t *testing.T) {
		orders := setup.Subscription(t)
		orders.Start(busyAtFirst)
		orders.Start(busyAtFirst)
		for n := range 200 {
			for _, key := range []string{"anna", "bob"} {
				orders.Publish(&pulsar.ProducerMessage{Payload: fmt.Appendf(nil, "%s %d", key, n), Key: key})
			}
		}
		time.Sleep(time.Second)
		orders.Elect()
		orders.Settle(time.Minute)
		time.Sleep(time.Minute) // for messages that might be handled again
		succeeded := map[string][]string{}
		for _, a := range orders.Calls() {
			if a.Err == nil {
				succeeded[a.Message.Key] = append(succeeded[a.Message.Key], string(a.Message.Payload))
			}
		}
		for key, payloads := range succeeded {
			require.Equal(t, 200, len(payloads), key)
			for n, payload := range payloads {
				require.Equal(t, fmt.Sprint(key, " ", n), payload)
			}
		}
	})
}

// busyAtFirst fails the first message of a key at its first delivery.
func busyAtFirst(_ context.Context, msg pulsar.Message) error {
	if n := len(msg.Payload()); msg.RedeliveryCount() == 0 && string(msg.Payload()[n-2:]) == " 0" {
		return errDown
	}
	return nil
}

func TestOutageMakesFewCallsAndCountsNoAttempt(t *testing.T) {
	for name, batched := range map[string]bool{"messages": false, "batches": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pause := worker.WithPauseOnFailure(4, 1, backoff.Fixed(10*time.Second))
				orders := dead3.Subscription(t)
				if batched {
					orders.StartBatch(func(context.Context, []pulsar.Message) error { return nil },
						worker.Batch{MaxMessages: 2}, pause,
						worker.WithConcurrency(2))
				} else {
					orders.Start(handle, pause, worker.WithConcurrency(4))
				}
				orders.Outage(errDown)
				orders.Publish(messages(40, "good")...)
				time.Sleep(59 * time.Second)
				require.LessOrEqual(t, len(orders.Calls()), 20)
				orders.Outage(nil)
				orders.Settle(time.Minute)
				calls := orders.Calls()
				require.Equal(t, "no answer: ", calls[0].String()[:11])
				require.Len(t, slices.DeleteFunc(calls, func(a workertest.Attempt) bool { return !a.Acked }), 40)
			})
		})
	}
}

func TestOtherWorkersHandleTheMessagesOfAStoppedOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		orders := workertest.Setup{Consumer: pulsar.ConsumerOptions{Type: pulsar.Shared}}.Subscription(t)
		orders.Publish(message("a"), message("b"), message("c"))
		slow := func(context.Context, pulsar.Message) error { time.Sleep(10 * time.Second); return nil }
		first := orders.Start(slow, worker.WithConcurrency(1))
		time.Sleep(5 * time.Second)
		orders.Start(slow, worker.WithConcurrency(1))
		require.Equal(t, []string{"not settled"}, orders.Calls().Strings())
		first.Stop() // returns when the handler has returned
		require.EqualValues(t, 1, first.Stats().Succeeded)
		orders.Settle(time.Minute)
		require.Equal(t, []string{"0s 0 a", "10s 1 b", "20s 1 c"}, payloads(orders.Calls()))
		first.Stop()
	})
}

// After a lost connection the handler's message comes again.
func TestMessageInAHandlerIsNotHandledTwiceAfterAReconnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		orders := workertest.Setup{Consumer: pulsar.ConsumerOptions{Type: pulsar.KeyShared}}.Subscription(t)
		orders.Start(func(context.Context, pulsar.Message) error { time.Sleep(10 * time.Second); return nil })
		orders.Publish(message("a"))
		time.Sleep(5 * time.Second)
		orders.Reconnect()
		orders.Settle(time.Minute)
		require.Equal(t, []string{"acked"}, orders.Attempts()[0].Strings())
	})
}

func TestEachMessageOfABatchHasAttemptsOfItsOwn(t *testing.T) {
	for name, c := range map[string]struct {
		handler worker.BatchHandler
		want    [][]string // of each message
	}{
		"a BatchError": {
			func(_ context.Context, msgs []pulsar.Message) error {
				if len(msgs) < 3 {
					return nil
				}
				return fmt.Errorf("insert: %w", worker.BatchError{1: worker.Permanent(errDown), 2: errDown})
			}, [][]string{{"acked"}, {"no answer: dead letter: no answer"}, {"no answer: back after 1.1s", "acked"}},
		},
		"BatchErrors joined": {
			func(_ context.Context, msgs []pulsar.Message) error {
				if len(msgs) < 3 {
					return nil
				}
				return errors.Join(worker.BatchError{1: errDown}, worker.BatchError{2: errDown})
			}, [][]string{{"acked"}, {"no answer: back after 1.1s", "acked"}, {"no answer: back after 1.1s", "acked"}},
		},
		"an index that no message has": {
			func(_ context.Context, msgs []pulsar.Message) error {
				if msgs[0].RedeliveryCount() > 0 {
					return nil
				}
				return worker.BatchError{3: errDown}
			}, [][]string{
				{"1 of the batch failed, first message 3: no answer: back after 1s", "acked"},
				{"1 of the batch failed, first message 3: no answer: back after 1s", "acked"},
				{"1 of the batch failed, first message 3: no answer: back after 1s", "acked"},
			},
		},
		"a panic": {
			func(_ context.Context, msgs []pulsar.Message) error {
				if msgs[0].RedeliveryCount() > 0 {
					return nil
				}
				panic(worker.BatchError{0: errDown})
			}, [][]string{
				{"panic: 1 of the batch failed, first message 0: no answer: back after 1s", "acked"},
				{"panic: 1 of the batch failed, first message 0: no answer: back after 1s", "acked"},
				{"panic: 1 of the batch failed, first message 0: no answer: back after 1s", "acked"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				orders := dead3.Subscription(t)
				orders.StartBatch(c.handler, worker.Batch{MaxMessages: 3})
				orders.Publish(messages(3, "good")...)
				orders.Settle(time.Minute)
				var got [][]string
				for _, attempts := range orders.Attempts() {
					got = append(got, attempts.Strings())
				}
				require.Equal(t, c.want, got)
			})
		})
	}
}

// The letter is in a topic that its error names. The retry counts as an attempt of the original message.
func TestLettersAndRetriesInOtherTopicsAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		setup := workertest.Setup{
			Consumer:   pulsar.ConsumerOptions{Type: pulsar.Shared, RetryEnable: true},
			Redelivery: []redelivery.Option{redelivery.WithNackRetryTopic(time.Minute)},
		}
		orders := setup.Subscription(t)
		orders.Start(func(_ context.Context, msg pulsar.Message) error {
			if msg.RedeliveryCount() == 0 {
				return worker.RetryAfter(time.Hour, errDown)
			}
			return worker.Permanent(redelivery.DeadLetterTo("refused", errors.New("no such order")))
		})
		orders.Publish(message("a"))
		orders.Settle(time.Minute * 90)
		require.Equal(t, []string{"no answer: back after 1h0m0.001s", "no such order: dead letter: no such order"},
			orders.Attempts()[0].Strings())
	})
}

// The producer delays messages. As at a broker, the other types ignore the delay.
func TestDelayedMessagesComeLaterOnSharedAndKeyShared(t *testing.T) {
	for kind, want := range map[pulsar.SubscriptionType][]string{
		pulsar.Shared: {"0s 0 c", "1h0m0s 0 a", "2h0m0s 0 b"}, pulsar.KeyShared: {"0s 0 c", "1h0m0s 0 a", "2h0m0s 0 b"},
		pulsar.Exclusive: {"0s 0 a", "0s 0 b", "0s 0 c"}, pulsar.Failover: {"0s 0 a", "0s 0 b", "0s 0 c"},
	} {
		synctest.Test(t, func(t *testing.T) {
			orders := workertest.Setup{Consumer: pulsar.ConsumerOptions{Type: kind}}.Subscription(t)
			orders.Start(func(context.Context, pulsar.Message) error { return nil }, worker.WithConcurrency(1))
			after, at := message("a"), message("b")
			after.DeliverAfter, at.DeliverAt = time.Hour, time.Now().Add(2*time.Hour)
			orders.Publish(after, at, message("c"))
			orders.Settle(24 * time.Hour)
			require.Equal(t, want, payloads(orders.Calls()))
		})
	}
}

// Two dead letters may have the same origin id: if they come from two topics, or from one message that became a dead
// letter twice.
func TestDeadLettersOfTheSameOriginAreDistinguished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		orders := workertest.Setup{}.Subscription(t)
		orders.Start(func(context.Context, pulsar.Message) error { return nil })
		a, b := message("a"), message("b")
		a.Properties = map[string]string{pulsar.SysPropertyOriginMessageID: "1:2:0", "DEAD_LETTER_TIME": "1",
			"EXCEPTION_MESSAGE": "no"}
		b.Properties = a.Properties
		orders.Publish(a, b)
		orders.Settle(time.Minute)
		for _, attempts := range orders.Attempts() {
			require.Equal(t, []string{"acked"}, attempts.Strings())
		}
	})
}

func TestWithAttemptLogFailsTheTestAndNamesPulsartest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{TB: t}
		setup := workertest.Setup{Redelivery: []redelivery.Option{redelivery.WithAttemptLog(redelivery.AttemptLog{})}}
		require.Panics(t, func() { setup.Subscription(f).Start(handle) })
		require.Len(t, f.failures, 1)
		require.Contains(t, f.failures[0], "no log of attempts here: use package pulsartest")
	})
}

// failing is a testing.TB that collects failures.
type failing struct {
	testing.TB
	failures []string
}

func (f *failing) Errorf(format string, args ...any) {
	f.failures = append(f.failures, fmt.Sprintf(format, args...))
}

func (f *failing) Fatalf(format string, args ...any) { f.Errorf(format, args...); panic(f) }

func TestMisuseFailsTheTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for want, misuse := range map[string]func(orders *workertest.Subscription){
			`workertest: 2 messages are not settled after 1m0s, the first is "a", with which no handler was called`: func(orders *workertest.Subscription) {
				orders.Publish(message("a"), message("b")) // without a Worker
				orders.Settle(time.Minute)
			},
			`workertest: 1 messages are not settled after 500ms, the first is "` + strings.Repeat("x", 100) +
				`"; the last of 1 attempts: no answer: not settled`: func(orders *workertest.Subscription) {
				orders.Start(func(context.Context, pulsar.Message) error { return errDown })
				orders.Publish(message(strings.Repeat("x", 1000)))
				orders.Settle(time.Second / 2)
			},
			"workertest: Elect is called with 0 Workers, want 2 or more, and Type " +
				"pulsar.Failover": func(orders *workertest.Subscription) {
				defer func() { _ = recover() }()
				orders.Elect()
			},
			"workertest: redelivery: invalid option: worker: New's handler is nil, want a " +
				"Handler": func(orders *workertest.Subscription) {
				defer func() { _ = recover() }()
				orders.Start(nil)
			},
			"workertest: redelivery: invalid option: worker: NewBatch's handler is nil, want a " +
				"BatchHandler": func(orders *workertest.Subscription) {
				defer func() { _ = recover() }()
				orders.StartBatch(nil, worker.Batch{})
			},
		} {
			f := &failing{TB: t}
			orders := dead3.Subscription(f)
			misuse(orders)
			require.Equal(t, []string{want}, f.failures)
		}
	})
	require.Panics(t, func() { dead3.Subscription(t) }, "outside of a bubble")
}

// A discarded message is acknowledged.
func TestDiscardedMessageIsNotReportedAsAcked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		setup := workertest.Setup{Redelivery: []redelivery.Option{
			redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 2, Discard: true}), redelivery.WithNackRedeliveryDelay(time.Second),
		}}
		orders := setup.Subscription(t)
		orders.Start(handle)
		orders.Publish(message("down"), message("good"))
		orders.Settle(time.Minute)
		attempts := orders.Attempts()
		require.Len(t, attempts[0], 2)
		last := attempts[0][1]
		require.True(t, last.Discarded)
		require.False(t, last.Acked)
		require.True(t, strings.HasSuffix(last.String(), ": discarded"), last.String())
		require.True(t, attempts[1][0].Acked)
	})
}
