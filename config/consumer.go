package config

import (
	"math"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
)

// Consumer is what a file says about one consumer. A zero field is not set in the file: the default holds, or what the program
// says. In the file, each name begins with a small letter.
type Consumer struct {
	// NackRedeliveryBackoff delays negatively acknowledged messages (PIP-106). The file has the name of a policy.
	NackRedeliveryBackoff backoff.RedeliveryBackoff
	// NackRedeliveryDelay is one delay for all negatively acknowledged messages; 0 in the file means at once. It cannot be
	// combined with NackRedeliveryBackoff.
	NackRedeliveryDelay *time.Duration
	// AckTimeout is how long the application may take to settle a message.
	AckTimeout time.Duration
	// AckTimeoutRedeliveryBackoff is a delay that is added to AckTimeout (PIP-130). It needs AckTimeout. The file has the name of
	// a policy.
	AckTimeoutRedeliveryBackoff backoff.RedeliveryBackoff
	// ReconsumeBackoff delays messages that are reconsumed (PIP-94); with it the consumer subscribes to the retry topic too.
	// The file has the name of a policy.
	ReconsumeBackoff backoff.RedeliveryBackoff
	// MaxDeliveries is the number of deliveries after which a message goes to the dead letter topic; for a message that is
	// reconsumed, the number of retries. Default: no limit.
	MaxDeliveries uint32
	// RetryLetterTopic is the topic of messages that are reconsumed. It needs MaxDeliveries.
	RetryLetterTopic string
	// DeadLetterTopic is the topic of messages that were delivered MaxDeliveries times. It needs MaxDeliveries. Default:
	// <topic>-<subscription>-DLQ.
	DeadLetterTopic string
	// InitialSubscriptionName is a subscription that the broker makes with the dead letter topic: it deletes dead letters that nobody has
	// subscribed to. It needs MaxDeliveries. Default: none.
	InitialSubscriptionName string
}

var consumerKeys = []string{"nackRedeliveryBackoff", "nackRedeliveryDelay", "ackTimeout", "ackTimeoutRedeliveryBackoff",
	"reconsumeBackoff", "maxDeliveries", "retryLetterTopic", "deadLetterTopic", "initialSubscriptionName"}

// consumer reads what is said about a consumer.
func (d *decoder) consumer(n *node, policies map[string]backoff.RedeliveryBackoff) Consumer {
	v := d.fields(n, consumerKeys...)
	c := Consumer{
		NackRedeliveryBackoff:       d.reference(v["nackRedeliveryBackoff"], policies),
		AckTimeout:                  d.duration(v["ackTimeout"], 1),
		AckTimeoutRedeliveryBackoff: d.reference(v["ackTimeoutRedeliveryBackoff"], policies),
		ReconsumeBackoff:            d.reference(v["reconsumeBackoff"], policies),
		MaxDeliveries:               uint32(d.whole(v["maxDeliveries"], 1, math.MaxUint32)),
		RetryLetterTopic:            d.text(v["retryLetterTopic"]),
		DeadLetterTopic:             d.text(v["deadLetterTopic"]),
		InitialSubscriptionName:     d.text(v["initialSubscriptionName"]),
	}
	if n := v["nackRedeliveryDelay"]; n != nil {
		delay := d.duration(n, 0)
		c.NackRedeliveryDelay = &delay
		d.exclude(n, v["nackRedeliveryBackoff"])
	}
	d.need(v["ackTimeoutRedeliveryBackoff"], v["ackTimeout"], "ackTimeout")
	d.need(v["retryLetterTopic"], v["maxDeliveries"], "maxDeliveries")
	d.need(v["deadLetterTopic"], v["maxDeliveries"], "maxDeliveries")
	d.need(v["initialSubscriptionName"], v["maxDeliveries"], "maxDeliveries")
	return c
}

// reference reads the name of a policy. A policy that was found wrong before is there, but nil.
func (d *decoder) reference(n *node, policies map[string]backoff.RedeliveryBackoff) backoff.RedeliveryBackoff {
	name := d.text(n)
	b, found := policies[name]
	if name != "" && !found {
		d.fail(n, "the name of a policy (%s)", d.policies)
	}
	return b
}

func (d *decoder) exclude(n, other *node) {
	if other != nil {
		d.errs = append(d.errs, wrong(n.at, n.path(), "is set, and so is %s at %s, want one of them", other.path(), other.at))
	}
}

func (d *decoder) need(n, other *node, name string) {
	if n != nil && other == nil {
		d.fail(n, "%s too", name)
	}
}

func (c Consumer) options() []redelivery.Option {
	var options []redelivery.Option
	if c.NackRedeliveryBackoff != nil {
		options = append(options, redelivery.WithNackRedeliveryBackoff(c.NackRedeliveryBackoff))
	}
	if c.NackRedeliveryDelay != nil {
		options = append(options, redelivery.WithNackRedeliveryDelay(*c.NackRedeliveryDelay))
	}
	if c.AckTimeout != 0 {
		options = append(options, redelivery.WithAckTimeout(c.AckTimeout))
	}
	if c.AckTimeoutRedeliveryBackoff != nil {
		options = append(options, redelivery.WithAckTimeoutRedeliveryBackoff(c.AckTimeoutRedeliveryBackoff))
	}
	if c.ReconsumeBackoff != nil {
		options = append(options, redelivery.WithReconsumeBackoff(c.ReconsumeBackoff))
	}
	return options
}

// apply sets what belongs into pulsar.ConsumerOptions; the DLQPolicy is a copy.
func (c Consumer) apply(opts pulsar.ConsumerOptions) pulsar.ConsumerOptions {
	if c.MaxDeliveries == 0 {
		return opts
	}
	dlq := pulsar.DLQPolicy{}
	if opts.DLQ != nil {
		dlq = *opts.DLQ
	}
	dlq.MaxDeliveries = c.MaxDeliveries
	if c.RetryLetterTopic != "" {
		dlq.RetryLetterTopic = c.RetryLetterTopic
		opts.RetryEnable = true
	}
	if c.DeadLetterTopic != "" {
		dlq.DeadLetterTopic = c.DeadLetterTopic
	}
	if c.InitialSubscriptionName != "" {
		dlq.InitialSubscriptionName = c.InitialSubscriptionName
	}
	opts.DLQ = &dlq
	return opts
}
