package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// The broker always refuses the acknowledgement. The message is left to the broker, and the slot handles others.
func TestAckThatIsAlwaysRefusedIsGivenUp(t *testing.T) {
	for name, option := range map[string]worker.Option{"each by itself": worker.WithConcurrency(1), "by key": worker.WithKeyOrder()} {
		t.Run(name, func(t *testing.T) {
			virtually(t, orders, func(t *rig) {
				t.broker.Ack = func(id pulsar.MessageID) error {
					if id.EntryID() == 0 {
						return errTest
					}
					return nil
				}
				w, stop := t.start(succeed, option, worker.WithConcurrency(1))
				t.publishKeyed("a1", "a2")
				t.sleep(2 * time.Minute)
				require.EqualValues(t, 1, w.Stats().Succeeded)
				require.EqualValues(t, 1, w.Stats().Left)
				require.Zero(t, w.Stats().InFlight)
				require.Positive(t, w.Stats().Unsettled)
				require.Contains(t, t.log.String(), "it was handled, but could not be acknowledged")
				require.NoError(t, stop())
				require.Len(t, t.broker.Unacked(), 1)
			})
		})
	}
}

// All messages of the batch together block their slot for one minute, not for a minute each.
func TestRefusedAcksOfABatchAreGivenUpTogether(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		t.broker.Ack = func(id pulsar.MessageID) error {
			if id.EntryID() < 20 {
				return errTest
			}
			return nil
		}
		w, err := worker.NewBatch(t.consumer, func(context.Context, []pulsar.Message) error { return nil },
			worker.Batch{MaxMessages: 25}, worker.WithConcurrency(1), worker.WithLogger(t.logger))
		require.NoError(t, err)
		stop := t.run(w)
		t.publish(make([]string, 50)...)
		t.sleep(2 * time.Minute)
		require.EqualValues(t, 30, w.Stats().Succeeded)
		require.EqualValues(t, 20, w.Stats().Left)
		require.Zero(t, w.Stats().InFlight)
		require.NoError(t, stop())
		require.Len(t, t.broker.Unacked(), 20)
	})
}

func TestMessageWhoseAckIsTriedAgainDoesNotTimeOut(t *testing.T) {
	for name, option := range map[string]worker.Option{
		"each by itself": worker.WithConcurrency(4), "by key": worker.WithKeyOrder(), "with a timeout": worker.WithTimeout(10 * time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, orders, func(t *rig) {
				var takes atomic.Bool
				t.broker.Ack = func(pulsar.MessageID) error {
					if !takes.Load() {
						return errTest
					}
					return nil
				}
				calls := newCalls()
				_, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
					calls.note(msg)
					return nil
				}, option, worker.WithConcurrency(4))
				t.publishKeyed("a", "b")
				t.sleep(20 * time.Second)
				takes.Store(true)
				t.sleep(time.Minute)
				require.NoError(t, stop())
				require.Len(t, calls.what, 2)
				require.Empty(t, t.broker.Unacked())
			}, redelivery.WithAckTimeout(2*time.Second))
		})
	}
}
