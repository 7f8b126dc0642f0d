package testkit

import (
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
)

// FromBroker has nacked messages wait at the broker.
var FromBroker = redelivery.WithRedeliveryFrom(redelivery.FromBroker)

// WaysToFail are the ways in which an application fails on a message, each with the option by which the message is
// delivered again after delay.
func WaysToFail(delay time.Duration) map[string]redelivery.Option {
	return map[string]redelivery.Option{
		"Nack":        redelivery.WithNackRedeliveryDelay(delay),
		"NackID":      redelivery.WithNackRedeliveryDelay(delay),
		"ack timeout": redelivery.WithAckTimeout(delay),
	}
}

// SubscriptionTypes are all of them, by name.
var SubscriptionTypes = map[string]pulsar.SubscriptionType{
	"Exclusive": pulsar.Exclusive, "Shared": pulsar.Shared, "Failover": pulsar.Failover, "KeyShared": pulsar.KeyShared,
}

// Each runs a parallel subtest for each of cases, under its name.
func Each[T any](t *testing.T, cases map[string]T, test func(*testing.T, T)) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, c)
		})
	}
}

// Ways are how an application fails on a message, each with the option by which the message is delivered again after
// 300 ms.
var Ways = map[string]struct {
	Option redelivery.Option
	Fail   func(*redelivery.Consumer, pulsar.Message)
}{
	"nack": {redelivery.WithNackRedeliveryDelay(300 * time.Millisecond), (*redelivery.Consumer).Nack},
	"ack timeout": {
		redelivery.WithAckTimeout(300 * time.Millisecond),
		func(c *redelivery.Consumer, msg pulsar.Message) {
			_ = c.InProgress(msg) // the clock starts after the caller looked at the message
		},
	},
}
