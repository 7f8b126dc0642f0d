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

func TestDelayThatEndsAfterTheTTLMakesADeadLetter(t *testing.T) {
	for name, options := range map[string][]worker.Option{"no order": nil, "key order": {worker.WithKeyOrder()}} {
		t.Run(name, func(t *testing.T) {
			virtually(t, withDeadLetters(99), func(t *rig) {
				calls := newCalls()
				_, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
					calls.note(msg)
					return errTest
				}, options...)
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

func TestSnoozeThatLeavesNoTimeBeforeTheTTLMakesADeadLetter(t *testing.T) {
	virtually(t, withDeadLetters(99), func(t *rig) {
		_, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			if string(msg.Payload()) == "long" {
				return worker.Snooze(59*time.Minute + time.Second) // ends within the margin of a minute before the TTL
			}
			return worker.Snooze(59 * time.Minute)
		})
		t.publish("long", "short")
		t.sleep(time.Minute)
		require.Len(t, t.letters(), 1)
		require.Regexp(t, `^long: .*delay of 59m1s .*TTL.*1h0m0s`, t.letters()[0])
		require.Equal(t, 1, t.consumer.Stats().Waiting)
		require.NoError(t, stop())
	}, redelivery.WithDeadBeforeTTL(time.Hour))
}

func TestDeadBeforeTTLRefusesNonsense(t *testing.T) {
	for want, options := range map[string][]redelivery.Option{
		"WithDeadBeforeTTL is 0s, want 1s or more":   {redelivery.WithDeadBeforeTTL(0)},
		"WithDeadBeforeTTL is 10ns, want 1s or more": {redelivery.WithDeadBeforeTTL(10)},
		"WithDeadBeforeTTL is -1s, want 1s or more":  {redelivery.WithDeadBeforeTTL(-time.Second)},
		"want WithDeadLetterPolicy":                  {redelivery.WithDeadBeforeTTL(time.Hour)},
		"want none with DeadLetterPolicy.Discard": {redelivery.WithDeadBeforeTTL(time.Hour),
			redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 3, Discard: true})},
	} {
		_, err := redelivery.Subscribe(noClient{}, orders, options...)
		require.ErrorIs(t, err, redelivery.ErrInvalidOption)
		require.ErrorContains(t, err, want)
	}
}
