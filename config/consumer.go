package config

import (
	"math"
	"strings"
	"time"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// Consumer has a file's options of one consumer. Each field is an option of package redelivery, and the documentation
// of the option says more. A zero field is not set in the file: the program's setting or the default applies. In the
// file, each name begins with a small letter.
type Consumer struct {
	// NackRedeliveryBackoff delays negatively acknowledged messages (PIP-106). The file has the name of a policy.
	NackRedeliveryBackoff backoff.RedeliveryBackoff
	// NackRedeliveryDelay is one delay for all negatively acknowledged messages; 0 in the file means at once. It cannot
	// be combined with NackRedeliveryBackoff.
	NackRedeliveryDelay *time.Duration
	// NackRetryTopic moves nacked messages with this delay or a longer one to the retry topic. It needs
	// ReconsumeBackoff.
	NackRetryTopic time.Duration
	// AckTimeout is how long the application may take to settle a message.
	AckTimeout time.Duration
	// AckTimeoutRedeliveryBackoff is a delay that is added to AckTimeout (PIP-130). It needs AckTimeout. The file has
	// the name of a policy.
	AckTimeoutRedeliveryBackoff backoff.RedeliveryBackoff
	// ReconsumeBackoff delays messages that are reconsumed (PIP-94). It also makes the consumer subscribe to the retry
	// topic. The file has the name of a policy.
	ReconsumeBackoff backoff.RedeliveryBackoff

	// MaxDeliveries is the number of deliveries after which a message goes to the dead letter topic. The file may have
	// Java's maxRedeliverCount instead: MaxDeliveries is then one more, and MaxReconsumes the same. Default: no limit.
	MaxDeliveries uint32
	// MaxReconsumes is the number of retries after which a message that is reconsumed goes to the dead letter topic. It
	// needs ReconsumeBackoff. Default: MaxDeliveries.
	MaxReconsumes uint32
	// DeadLetterTopic is the topic of dead letters. A name without a namespace, here and in RetryTopic and
	// AttemptLogTopic, is in the namespace of the consumer's first topic. Default: <topic>-<subscription>-DLQ.
	DeadLetterTopic string
	// InitialSubscriptionName is a subscription that the broker creates with the dead letter topic. Without a
	// subscription the broker deletes dead letters unread. Default: none, and a warning.
	InitialSubscriptionName string
	// OmitCause leaves texts of errors out of retries, dead letters and logs. DeadLetterTopic, InitialSubscriptionName
	// and OmitCause need MaxDeliveries or ReconsumeBackoff. Default: false.
	OmitCause bool
	// Discard acknowledges a message that would become a dead letter, and does not publish it; see
	// redelivery.DeadLetterPolicy.Discard. It needs MaxDeliveries or MaxReconsumes, and excludes DeadLetterTopic and
	// InitialSubscriptionName. Default: false.
	Discard bool
	// DeadBeforeTTL is the namespace's time to live. A message becomes a dead letter before this time is over; see
	// redelivery.WithDeadBeforeTTL. It must be at least 1 s, needs MaxDeliveries or ReconsumeBackoff, and excludes
	// Discard. Default: none.
	DeadBeforeTTL time.Duration
	// RetryTopic is the topic of messages that are reconsumed. The file may have Java's retryLetterTopic instead. Both
	// need ReconsumeBackoff. Default: <topic>-<subscription>-RETRY.
	RetryTopic string

	// AttemptLog keeps redelivery counts and due times in a topic, so that they outlive the process; see
	// redelivery.WithAttemptLog. Default: false.
	AttemptLog bool
	// AttemptLogTopic is the log's topic. Default: <topic>-<subscription>-ATTEMPTS.
	AttemptLogTopic string
	// AttemptLogOptional lets the consumer subscribe even if the log cannot be read. Default: false.
	AttemptLogOptional bool
	// AttemptLogOpenTimeout is how long subscribing may take to read the log. Default: 30 s.
	AttemptLogOpenTimeout time.Duration
	// AttemptLogRetention is how long a record stays in the log after its due time. AttemptLogTopic,
	// AttemptLogOptional, AttemptLogOpenTimeout and AttemptLogRetention need AttemptLog. Default: one day.
	AttemptLogRetention time.Duration

	// MemoryLimit is how many bytes of messages are kept in memory; 0 in the file means none. Default:
	// redelivery.DefaultMemoryLimit.
	MemoryLimit *int64
	// RedeliveryFrom is where nacked messages wait. The file has auto, memory or broker. Default: auto.
	RedeliveryFrom redelivery.Source
	// Resolution is how often the consumer sends its requests for redelivery to the broker, from 1 ms to 1 minute.
	// Default: that of redelivery.WithRedeliveryResolution.
	Resolution time.Duration
	// WithoutChecks skips the checks of the options when the consumer subscribes. Default: false.
	WithoutChecks bool
}

var consumerKeys = []string{"nackRedeliveryBackoff", "nackRedeliveryDelay", "nackRetryTopic", "ackTimeout",
	"ackTimeoutRedeliveryBackoff",
	"reconsumeBackoff", "maxDeliveries", "maxReconsumes", "deadLetterTopic", "initialSubscriptionName", "omitCause",
	"discard", "deadBeforeTTL", "retryTopic",
	"attemptLog", "attemptLogTopic", "attemptLogOptional", "attemptLogOpenTimeout", "attemptLogRetention",
	"memoryLimit", "redeliveryFrom", "resolution", "withoutChecks", "maxRedeliverCount", "retryLetterTopic"}

// consumer reads the options of a consumer.
func (d *decoder) consumer(n *node, policies map[string]backoff.RedeliveryBackoff) Consumer {
	v := d.fields(n, consumerKeys...)
	c := Consumer{
		NackRedeliveryBackoff:       d.reference(v["nackRedeliveryBackoff"], policies),
		NackRetryTopic:              d.duration(v["nackRetryTopic"], 1),
		AckTimeout:                  d.duration(v["ackTimeout"], 1),
		AckTimeoutRedeliveryBackoff: d.reference(v["ackTimeoutRedeliveryBackoff"], policies),
		ReconsumeBackoff:            d.reference(v["reconsumeBackoff"], policies),
		MaxDeliveries:               uint32(d.whole(v["maxDeliveries"], 1, math.MaxUint32)),
		MaxReconsumes:               uint32(d.whole(v["maxReconsumes"], 1, math.MaxUint32)),
		DeadLetterTopic:             d.topic(v["deadLetterTopic"]),
		InitialSubscriptionName:     d.text(v["initialSubscriptionName"]),
		OmitCause:                   d.boolean(v["omitCause"]),
		Discard:                     d.boolean(v["discard"]),
		DeadBeforeTTL:               d.duration(v["deadBeforeTTL"], time.Second),
		RetryTopic:                  d.topic(v["retryTopic"]),
		AttemptLog:                  d.boolean(v["attemptLog"]),
		AttemptLogTopic:             d.topic(v["attemptLogTopic"]),
		AttemptLogOptional:          d.boolean(v["attemptLogOptional"]),
		AttemptLogOpenTimeout:       d.duration(v["attemptLogOpenTimeout"], 1),
		AttemptLogRetention:         d.duration(v["attemptLogRetention"], 1),
		RedeliveryFrom:              d.source(v["redeliveryFrom"]),
		Resolution:                  d.resolution(v["resolution"]),
		WithoutChecks:               d.boolean(v["withoutChecks"]),
	}
	if n := v["nackRedeliveryDelay"]; n != nil {
		delay := d.duration(n, 0)
		c.NackRedeliveryDelay = &delay
		d.exclude(n, v["nackRedeliveryBackoff"])
	}
	if n := v["memoryLimit"]; n != nil {
		limit := d.bytes(n, 0)
		c.MemoryLimit = &limit
	}
	d.java(v, &c)
	d.need(v, "ackTimeoutRedeliveryBackoff", "ackTimeout")
	for _, key := range []string{"nackRetryTopic", "maxReconsumes", "retryTopic", "retryLetterTopic"} {
		d.need(v, key, "reconsumeBackoff")
	}
	for _, key := range []string{"deadLetterTopic", "initialSubscriptionName", "omitCause", "deadBeforeTTL"} {
		d.need(v, key, "maxDeliveries", "maxRedeliverCount", "reconsumeBackoff")
	}
	if c.Discard {
		d.need(v, "discard", "maxDeliveries", "maxRedeliverCount", "maxReconsumes")
		for _, key := range []string{"deadLetterTopic", "initialSubscriptionName", "deadBeforeTTL"} {
			if n := v[key]; n != nil {
				d.exclude(n, v["discard"])
			}
		}
	}
	for _, key := range []string{"attemptLogTopic", "attemptLogOptional", "attemptLogOpenTimeout",
		"attemptLogRetention"} {
		if n := v[key]; n != nil && !c.AttemptLog {
			d.fail(n, "attemptLog: true too")
		}
	}
	return c
}

// java reads the fields of Java's DeadLetterPolicy that have other names than the keys of the file. Java does not count
// the first delivery.
func (d *decoder) java(v map[string]*node, c *Consumer) {
	if n := v["maxRedeliverCount"]; n != nil {
		count := uint32(d.whole(n, 1, math.MaxInt32))
		c.MaxDeliveries = count + 1
		d.exclude(n, v["maxDeliveries"])
		if v["maxReconsumes"] == nil {
			c.MaxReconsumes = count
		}
	}
	if n := v["retryLetterTopic"]; n != nil {
		c.RetryTopic = d.topic(n)
		d.exclude(n, v["retryTopic"])
	}
}

// topic reads a topic of dead letters, retries or a log.
func (d *decoder) topic(n *node) string {
	topic := d.text(n)
	switch want := topicname.Want(topic); {
	case topic == "":
	case !topicname.IsPersistent(topic):
		d.fail(n, "a persistent topic")
	case want != "":
		d.fail(n, "%s", want)
	}
	return topic
}

func (d *decoder) source(n *node) redelivery.Source {
	source := redelivery.Source(d.text(n))
	switch source {
	case "", redelivery.FromAuto, redelivery.FromMemory, redelivery.FromBroker:
		return source
	}
	d.fail(n, "one of auto, memory, broker")
	return ""
}

func (d *decoder) resolution(n *node) time.Duration {
	v := d.duration(n, time.Millisecond)
	if v > time.Minute {
		d.fail(n, "at most %v", time.Minute)
		return 0
	}
	return v
}

// reference reads the name of a policy, and returns the policy. It returns nil without an error for a policy that is
// wrong itself, since the policy's own error is enough.
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
		d.errs = append(d.errs, wrong(n.at, n.path(), "is set, and so is %s at %s, want one of them", other.path(),
			other.at))
	}
}

// need adds an error if key is set and none of others is.
func (d *decoder) need(v map[string]*node, key string, others ...string) {
	if v[key] == nil {
		return
	}
	for _, other := range others {
		if v[other] != nil {
			return
		}
	}
	d.fail(v[key], "%s too", strings.Join(others, " or "))
}
