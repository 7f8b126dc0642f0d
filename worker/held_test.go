package worker_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// handling counts how often messages were handled.
type handling struct {
	mu    sync.Mutex
	times map[string]int
}

func (c *handling) add(msgs ...pulsar.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, msg := range msgs {
		if c.times == nil {
			c.times = map[string]int{}
		}
		c.times[string(msg.Payload())]++
	}
}

// The handler returns within the ack timeout, but before it is called the message waits longer than that.
func TestHandledOnceWithinTheAckTimeout(t *testing.T) {
	const timeout = 30 * time.Second
	t.Run("waiting for a batch", func(t *testing.T) {
		virtually(t, orders, func(t *rig) {
			var handled handling
			w, err := worker.NewBatch(t.consumer, func(_ context.Context, msgs []pulsar.Message) error {
				handled.add(msgs...)
				time.Sleep(25 * time.Second)
				return nil
			}, worker.Batch{MaxWait: 8 * time.Second}, worker.WithConcurrency(2), worker.WithLogger(t.logger))
			require.NoError(t, err)
			stop := t.run(w)
			t.publish("a")
			t.sleep(7 * time.Second)
			t.publish("b")
			t.sleep(time.Hour)
			require.NoError(t, stop())
			require.Equal(t, map[string]int{"a": 1, "b": 1}, handled.times)
		}, redelivery.WithAckTimeout(timeout))
	})
	t.Run("waiting for the end of an outage", func(t *testing.T) {
		virtually(t, orders, func(t *rig) {
			var handled handling
			w, err := worker.New(t.consumer, func(_ context.Context, msg pulsar.Message) error {
				if handled.add(msg); handled.times["a"] <= 2 {
					return errTest
				}
				time.Sleep(25 * time.Second)
				return nil
			}, worker.WithPauseOnFailure(1, 1, backoff.Fixed(9*time.Second)), worker.WithConcurrency(2), worker.WithLogger(t.logger))
			require.NoError(t, err)
			stop := t.run(w)
			t.publish("a")
			t.sleep(time.Hour)
			require.NoError(t, stop())
			require.Equal(t, map[string]int{"a": 3}, handled.times)
		}, redelivery.WithAckTimeout(timeout))
	})
	t.Run("waiting for the dead letters of others", func(t *testing.T) {
		virtually(t, withDeadLetters(5), func(t *rig) {
			t.broker.Send = func(string) error {
				time.Sleep(9 * time.Second)
				return nil
			}
			for _, payload := range []string{"a", "b", "c"} {
				t.publish(payload)
			}
			var handled handling
			w, err := worker.NewBatch(t.consumer, func(_ context.Context, msgs []pulsar.Message) error {
				handled.add(msgs...)
				return worker.Permanent(errTest)
			}, worker.Batch{}, worker.WithLogger(t.logger), worker.WithConcurrency(2))
			require.NoError(t, err)
			stop := t.run(w)
			t.sleep(time.Hour)
			require.NoError(t, stop())
			require.Equal(t, map[string]int{"a": 1, "b": 1, "c": 1}, handled.times)
		}, redelivery.WithAckTimeout(10*time.Second))
	})
}
