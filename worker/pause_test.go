package worker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// The policy may call the Worker.
func TestPausePolicyIsAskedOncePerTry(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		var mu sync.Mutex
		var asked []uint32
		var w *worker.Worker
		w, stop := t.start(func(context.Context, pulsar.Message) error { return errTest },
			worker.WithConcurrency(4), worker.WithPauseOnFailure(2, 1, backoff.Func(func(try uint32) time.Duration {
				w.Pause()
				w.Resume()
				require.True(t, w.Stats().Outage)
				require.NoError(t, w.Healthy())
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, try)
				return 10 * time.Second
			})))
		for range 10 {
			t.publish("tea")
		}
		t.sleep(45 * time.Second)
		require.Equal(t, []uint32{0, 1, 2, 3, 4}, asked)
		require.NoError(t, stop())
	})
}

// When the connection breaks in an outage, the Worker drops the messages that it kept, and they come again. A dropped
// message is no try, so no pause follows it.
func TestOutageDoesNotPauseForEachMessageLostInAReconnection(t *testing.T) {
	for name, options := range map[string][]worker.Option{"in any order": nil, "in key order": {worker.WithKeyOrder()}} {
		t.Run(name, func(t *testing.T) {
			virtually(t, exclusive(9), func(t *rig) {
				began, up := time.Now(), time.Duration(0)
				var mu sync.Mutex
				w, stop := t.start(func(context.Context, pulsar.Message) error {
					mu.Lock()
					defer mu.Unlock()
					if time.Since(began) < time.Minute+time.Second {
						return errTest
					}
					up = max(up, time.Since(began))
					return nil
				}, append(options, worker.WithConcurrency(4), worker.WithPauseOnFailure(1, 1, backoff.Fixed(time.Minute)))...)
				for n := range 20 {
					t.broker.Publish("orders", &pulsar.ProducerMessage{Payload: fmt.Append(nil, n), Key: fmt.Sprint(n % 5)})
				}
				t.sleep(90 * time.Second)
				t.broker.Reconnect()
				t.sleep(time.Hour)
				require.NoError(t, stop())
				require.LessOrEqual(t, up, 2*time.Minute+10*time.Second)
				require.EqualValues(t, 20, w.Stats().Succeeded)
				require.Empty(t, t.broker.Unacked())
			}, redelivery.WithNackRedeliveryDelay(time.Second))
		})
	}
}

// The Consumer gives up during an outage. Then a handler's success ends the outage.
func TestKeptMessagesAreNotHandledAfterTheConsumerGaveUp(t *testing.T) {
	virtually(t, exclusive(9), func(t *rig) {
		calls := newCalls()
		w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			if calls.note(msg); string(msg.Payload()) == "slow" {
				time.Sleep(20 * time.Second)
				return nil
			}
			time.Sleep(time.Second)
			return errTest
		}, worker.WithConcurrency(4), worker.WithPauseOnFailure(2, 1, backoff.Fixed(time.Minute)),
			// The slot that calls the observer notices the loss a second later than the other slots.
			worker.WithObserver(worker.Observer{Paused: func(worker.Paused) { time.Sleep(time.Second) }}))
		for _, payload := range []string{"slow", "a", "b", "c"} {
			t.publish(payload)
		}
		t.sleep(10 * time.Second)
		require.True(t, w.Stats().Outage)
		t.broker.GiveUp(errTest)
		t.sleep(time.Minute)
		require.Error(t, stop())
		require.Len(t, calls.times(), 4)
	})
}

// Each Worker receives a message when Pause is called, and calls its handler seconds later.
func TestMessageReceivedBeforeAPauseIsInFlight(t *testing.T) {
	for name, options := range map[string][]worker.Option{"in any order": nil, "in key order": {worker.WithKeyOrder()}} {
		t.Run(name, func(t *testing.T) {
			virtually(t, orders, func(t *rig) {
				calls := newCalls()
				w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
					calls.note(msg)
					return nil
				}, append(options, worker.WithConcurrency(2))...)
				t.publish("tea")
				t.sleep(time.Second)
				require.Zero(t, w.Stats().InFlight) // without a pause such a message does not count
				w.Pause()
				t.sleep(time.Second)
				require.Equal(t, 1, w.Stats().InFlight)
				t.sleep(time.Minute)
				require.Len(t, calls.times(), 1)
				require.Zero(t, w.Stats().InFlight)
				require.NoError(t, stop())
			}, redelivery.WithObserver(redelivery.Observer{Delivered: func(redelivery.Delivered) { time.Sleep(5 * time.Second) }}))
		})
	}
}
