package worker_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// Each message is handled once and published once.
func TestEachDeadLetterOfABatchHasATimeLimitOfItsOwn(t *testing.T) {
	for name, failure := range map[string]error{"permanent": worker.Permanent(errTest), "the last delivery": errTest} {
		t.Run(name, func(t *testing.T) {
			virtually(t, withDeadLetters(1), func(t *rig) {
				t.broker.Send = func(string) error {
					time.Sleep(400 * time.Millisecond)
					return nil
				}
				const n = 200
				for i := range n {
					t.publish(fmt.Sprint(i))
				}
				var handled handling
				w, err := worker.NewBatch(t.consumer, func(_ context.Context, msgs []pulsar.Message) error {
					handled.add(msgs...)
					failed := worker.BatchError{}
					for i := range msgs {
						failed[i] = failure
					}
					return failed
				}, worker.Batch{MaxMessages: n}, worker.WithLogger(t.logger), worker.WithConcurrency(1))
				require.NoError(t, err)
				stop := t.run(w)
				t.sleep(time.Hour)
				require.NoError(t, stop())
				require.Len(t, handled.times, n)
				for payload, times := range handled.times {
					require.Equal(t, 1, times, payload)
				}
				require.Len(t, t.letters(), n)
				require.Empty(t, t.broker.Unacked())
				require.Zero(t, w.Stats().Unsettled)
			}, redelivery.WithNackRedeliveryDelay(time.Minute))
		})
	}
}

func TestHangingDeadLetterTopicBlocksOneSlotAtATime(t *testing.T) {
	for name, failure := range map[string]error{
		"a topic of its own": worker.Permanent(redelivery.DeadLetterTo("special", errTest)), "the last delivery": errTest,
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, withDeadLetters(1), func(t *rig) {
				var answers atomic.Bool
				t.broker.Send = func(topic string) error {
					if !answers.Load() && (strings.Contains(topic, "special") || strings.Contains(topic, "DLQ")) {
						time.Sleep(time.Hour)
						return errTest
					}
					return nil
				}
				const n = 2000
				for i := range n {
					t.publish([]string{"bad", "good"}[min(1, i%20)])
				}
				var good atomic.Int32
				w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
					if string(msg.Payload()) == "bad" {
						return failure
					}
					time.Sleep(10 * time.Millisecond)
					good.Add(1)
					return nil
				}, worker.WithConcurrency(4))
				t.sleep(time.Minute)
				require.EqualValues(t, n-n/20, good.Load())
				require.Positive(t, w.Stats().Unsettled)
				answers.Store(true)
				t.sleep(3 * time.Hour)
				require.NoError(t, stop())
				require.Empty(t, t.broker.Unacked())
			}, redelivery.WithNackRedeliveryDelay(10*time.Second))
		})
	}
}

// The first dead letter is published at once, but its message cannot be acknowledged for a while.
func TestUnacknowledgedMessageOfADeadLetterHoldsUpNoOthers(t *testing.T) {
	virtually(t, withDeadLetters(9), func(t *rig) {
		t.broker.Ack = func(id pulsar.MessageID) error {
			if id.EntryID() == 0 {
				return errTest
			}
			return nil
		}
		w, stop := t.start(func(context.Context, pulsar.Message) error { return worker.Permanent(errTest) },
			worker.WithConcurrency(3))
		t.publish("a")
		t.sleep(10 * time.Second)
		require.Equal(t, []string{"a: no luck"}, t.letters())
		failures := w.Stats().Unsettled
		require.Positive(t, failures)
		t.broker.Ack = nil
		t.broker.Send = func(string) error { time.Sleep(time.Second); return nil }
		t.publish("b", "c")
		t.sleep(20 * time.Second)
		require.ElementsMatch(t, []string{"a: no luck", "b: no luck", "c: no luck"}, t.letters())
		require.Equal(t, failures, w.Stats().Unsettled)
		require.NoError(t, stop())
		require.Empty(t, t.broker.Unacked())
	}, redelivery.WithNackRedeliveryDelay(time.Minute))
}
