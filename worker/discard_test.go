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

func TestDiscardWithARetryTopicEndsItsRetries(t *testing.T) {
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

func TestDelayThatEndsAfterTheTTLMakesADeadLetter(t *testing.T) {
	for name, kind := range map[string][]worker.Option{"no order": nil, "key order": {worker.WithKeyOrder()}} {
		t.Run(name, func(t *testing.T) {
			virtually(t, withDeadLetters(99), func(t *rig) {
				calls := newCalls()
				_, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
					calls.note(msg)
					return errTest
				}, kind...)
				t.broker.Publish("orders", &pulsar.ProducerMessage{Payload: []byte("tea"), Key: "k"})
				t.sleep(24 * time.Hour)
				require.NoError(t, stop())
				// The delays are 1, 2, 4, 8 and 16 minutes; a sixth one would end after 63 minutes.
				m := time.Minute
				require.Equal(t, []time.Duration{0, m, 3 * m, 7 * m, 15 * m, 31 * m}, calls.times())
				require.Len(t, t.letters(), 1)
				require.Contains(t, t.letters()[0], "no luck")
				require.Contains(t, t.log.String(), "reason=ttl")
				require.Empty(t, t.broker.Unacked())
			}, redelivery.WithDeadBeforeTTL(time.Hour),
				redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: time.Minute, Max: 24 * time.Hour, Multiplier: 2}))
		})
	}
}

func TestSnoozeThatEndsAfterTheTTLMakesADeadLetter(t *testing.T) {
	virtually(t, withDeadLetters(99), func(t *rig) {
		_, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			if string(msg.Payload()) == "long" {
				return worker.Snooze(59*time.Minute + time.Second) // the last minute is for publishing
			}
			return worker.Snooze(59 * time.Minute)
		})
		t.publish("long", "short")
		t.sleep(time.Minute)
		require.Len(t, t.letters(), 1)
		require.Equal(t, "long: the message may expire before its delay of 59m1s is over (TTL 1h0m0s)", t.letters()[0])
		require.Equal(t, 1, t.consumer.Stats().Waiting)
		require.NoError(t, stop())
	}, redelivery.WithDeadBeforeTTL(time.Hour))
}

func TestDeadBeforeTTLRefusesNonsense(t *testing.T) {
	for want, options := range map[string][]redelivery.Option{
		"WithDeadBeforeTTL is 0s, want 1s or more":  {redelivery.WithDeadBeforeTTL(0)},
		"WithDeadBeforeTTL is 10ns, want 1s or":     {redelivery.WithDeadBeforeTTL(10)},
		"WithDeadBeforeTTL is -1s, want 1s or more": {redelivery.WithDeadBeforeTTL(-time.Second)},
		"want WithDeadLetterPolicy":                 {redelivery.WithDeadBeforeTTL(time.Hour)},
		"want none with DeadLetterPolicy.Discard": {redelivery.WithDeadBeforeTTL(time.Hour),
			redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 3, Discard: true})},
	} {
		_, err := redelivery.Subscribe(noClient{}, orders, options...)
		require.ErrorIs(t, err, redelivery.ErrInvalidOption)
		require.ErrorContains(t, err, want)
	}
}
