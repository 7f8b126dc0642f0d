package testkit

import (
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
)

// FromBroker makes nacked messages wait at the broker.
var FromBroker = redelivery.WithRedeliveryFrom(redelivery.FromBroker)

// SubscriptionTypes has all subscription types by name.
var SubscriptionTypes = map[string]pulsar.SubscriptionType{
	"Exclusive": pulsar.Exclusive, "Shared": pulsar.Shared, "Failover": pulsar.Failover, "KeyShared": pulsar.KeyShared,
}

// Each runs a parallel subtest for each case, under the case's name.
func Each[T any](t *testing.T, cases map[string]T, test func(*testing.T, T)) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, c)
		})
	}
}

// Way is a way in which an application fails on a message.
type Way struct {
	Option redelivery.Option // decides that the message is delivered again after a delay
	Fail   func(*redelivery.Consumer, pulsar.Message)
}

// Ways returns the ways in which an application fails on a message, by name. After delay the message is delivered
// again.
func Ways(delay time.Duration) map[string]Way {
	nack := redelivery.WithNackRedeliveryDelay(delay)
	return map[string]Way{
		"Nack":   {nack, (*redelivery.Consumer).Nack},
		"NackID": {nack, func(c *redelivery.Consumer, msg pulsar.Message) { c.NackID(msg.ID()) }},
		"ack timeout": {redelivery.WithAckTimeout(delay), func(c *redelivery.Consumer, msg pulsar.Message) {
			_ = c.InProgress(msg) // restarts the timeout, since the caller has used some time to look at the message
		}},
	}
}
