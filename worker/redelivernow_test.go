package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

func TestRedeliverNowLetsAWorkerHandleWaitingMessages(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			opts := orders
			opts.Type = kind
			virtually(t, opts, func(t *rig) {
				calls := newCalls()
				w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
					calls.note(msg)
					if msg.RedeliveryCount() == 2 {
						return nil
					}
					if string(msg.Payload()) == "snoozed" && len(calls.times()) == 3 {
						return worker.Snooze(time.Hour)
					}
					return errTest
				}, worker.WithConcurrency(1))
				t.publish("a", "b", "snoozed")
				t.sleep(time.Second)
				require.Equal(t, 3, t.consumer.Stats().Waiting)
				require.Zero(t, t.consumer.Stats().Ready)
				require.Equal(t, 3, t.consumer.RedeliverNow())
				t.sleep(time.Second)
				require.Len(t, calls.times(), 6)
				require.Equal(t, 3, t.consumer.RedeliverNow())
				require.Zero(t, t.consumer.RedeliverNow())
				t.sleep(time.Second)
				require.Equal(t, 1, t.consumer.RedeliverNow()) // the count of the snoozed message is one less
				t.sleep(time.Second)
				require.NoError(t, stop())
				require.EqualValues(t, 3, w.Stats().Succeeded)
				require.Equal(t, []time.Duration{0, 0, 0, 1e9, 1e9, 1e9, 2e9, 2e9, 2e9, 3e9}, calls.times())
			}, redelivery.WithNackRedeliveryBackoff(backoff.Fixed(time.Hour)))
		})
	}
}

func TestRedeliverNowDoesNotEndAckTimeouts(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		t.publish("with the application")
		msg, err := t.consumer.Receive(context.Background())
		require.NoError(t, err)
		before, err := t.consumer.Delivery(msg)
		require.NoError(t, err)
		t.sleep(time.Second)
		require.Zero(t, t.consumer.RedeliverNow())
		after, err := t.consumer.Delivery(msg)
		require.NoError(t, err)
		require.Equal(t, before, after)
		t.consumer.Close()
		require.Zero(t, t.consumer.RedeliverNow())
	}, redelivery.WithAckTimeout(time.Minute))
}

func TestRedeliverNowKeepsCountsAndDelays(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		calls := newCalls()
		_, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			require.EqualValues(t, calls.note(msg)-1, msg.RedeliveryCount())
			return errTest
		})
		t.publish("a")
		t.sleep(time.Second)
		require.Equal(t, 1, t.consumer.RedeliverNow())
		t.sleep(time.Hour)
		require.NoError(t, stop())
		m := time.Minute
		require.Equal(t, []time.Duration{0, 1e9, 1e9 + 20*m, 1e9 + 60*m}, append(calls.times(), 1e9+60*m)[:4])
	}, redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: 10 * time.Minute, Max: 24 * time.Hour, Multiplier: 2}))
}
