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

func TestDiscardAcknowledgesTheMessageAfterItsLastDelivery(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		calls int
		want  string
	}{
		"an error":  {errTest, 3, "discarded max_deliveries 3 no luck"},
		"permanent": {worker.Permanent(errTest), 1, "discarded permanent 1 no luck"},
	} {
		t.Run(name, func(t *testing.T) {
			var settled []string
			observe := redelivery.WithObserver(redelivery.Observer{Settled: func(e redelivery.Settled) {
				if e.Outcome != redelivery.Nacked {
					settled = append(settled, fmt.Sprint(e.Outcome, " ", e.Reason, " ", e.Attempts, " ", e.Why))
				}
			}})
			virtually(t, orders, func(t *rig) {
				calls := newCalls()
				_, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
					calls.note(msg)
					return c.err
				})
				t.publish("tea")
				t.sleep(time.Hour)
				require.NoError(t, stop())
				require.Len(t, calls.times(), c.calls)
				require.Equal(t, []string{c.want}, settled)
				require.Empty(t, t.letters())
				require.Empty(t, t.broker.Unacked())
				require.Len(t, t.linesWith(`level=WARN msg="redelivery: a message is discarded"`), 1)
			}, observe, redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 3, Discard: true}))
		})
	}
}

func TestDiscardEndsRetriesAfterMaxReconsumes(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		t.publish("tea")
		for retries := range 3 {
			msg, err := t.consumer.Receive(t.Context())
			require.NoError(t, err)
			if retries > 0 {
				require.Equal(t, fmt.Sprint(retries), msg.Properties()["RECONSUMETIMES"])
			}
			require.NoError(t, t.consumer.ReconsumeLaterNext(t.Context(), msg))
		}
		t.sleep(time.Hour)
		require.Zero(t, t.consumer.Stats().Waiting)
		require.Empty(t, t.letters())
		require.Len(t, t.linesWith("a message is discarded"), 1)
		require.Contains(t, t.log.String(), "reconsumed 2 times")
	}, redelivery.WithReconsumeBackoff(backoff.Fixed(time.Second)),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxReconsumes: 2, Discard: true}))
}

func TestDiscardRefusesContradictingOptions(t *testing.T) {
	for want, policy := range map[string]redelivery.DeadLetterPolicy{
		"DeadLetterPolicy.Topic is x":                   {MaxDeliveries: 3, Discard: true, Topic: "x"},
		"DeadLetterPolicy.InitialSubscriptionName is x": {MaxDeliveries: 3, Discard: true, InitialSubscriptionName: "x"},
		"DeadLetterPolicy.ProducerName is x":            {MaxDeliveries: 3, Discard: true, ProducerName: "x"},
		"DeadLetterPolicy.MaxDeliveries is 0":           {Discard: true},
	} {
		_, err := redelivery.Subscribe(noClient{}, orders, redelivery.WithDeadLetterPolicy(policy))
		require.ErrorIs(t, err, redelivery.ErrInvalidOption)
		require.ErrorContains(t, err, want)
	}
}

// noClient is a client whose methods are never called.
type noClient struct{ pulsar.Client }
