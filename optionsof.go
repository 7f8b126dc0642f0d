package redelivery

import (
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// Options are what the options of a Consumer come to, its defaults included. They contain no secrets: no client, producer, key or token.
type Options struct {
	Topics        []string // as they were given; none of a pattern
	TopicsPattern string   // "" if topics are named
	Subscription  string   // its name
	Type          string   // Exclusive, Shared, Failover or Key_Shared

	Nack              backoff.RedeliveryBackoff // of nacked messages
	NackRetryTopic    time.Duration             // nacks from this delay on go to the retry topic; 0 for none
	AckTimeout        time.Duration             // 0 for none
	AckTimeoutBackoff backoff.RedeliveryBackoff // nil for none
	Reconsume         backoff.RedeliveryBackoff // of the retry topic; nil for backoff.DefaultDelayLevels
	MaxDeliveries     uint32                    // 0 for no limit
	MaxReconsumes     uint32                    // 0 for no limit

	RetryTopic              string // its whole name; "" if there is none
	DeadLetterTopic         string // its whole name; "" if there is none
	InitialSubscriptionName string // of the dead letter topic; "" for none
	OmitCause               bool   // dead letters and log lines have the types of errors, not their texts

	DeadBeforeTTL time.Duration // WithDeadBeforeTTL; 0 for none

	Source                   Source // where nacked messages wait; "" for FromAuto
	MemoryLimit              int64  // bytes
	AttemptLog               bool   // WithAttemptLog is given
	ReceiverQueueSize        int    // messages that are prefetched from each partition
	BatchIndexAcknowledgment bool   // EnableBatchIndexAcknowledgment
}

// Options returns what the options of the Consumer come to. Of one that Wrap made, topics, type, queue and batch-index acknowledgement are
// not known, and zero. It may be called concurrently.
func (c *Consumer) Options() Options {
	o := c.options
	o.Topics = slices.Clone(o.Topics)
	return o
}

// optionsOf is what options come to; opts is nil of a Consumer that Wrap made.
func optionsOf(s *settings, x *publisher, subscription string, opts *pulsar.ConsumerOptions) Options {
	known := opts != nil
	if !known {
		opts = &pulsar.ConsumerOptions{}
	}
	limits, _ := s.limits(*opts)
	o := Options{Topics: slices.Clone(topicsOf(*opts)), TopicsPattern: opts.TopicsPattern, Subscription: subscription, Nack: s.nackBackoff,
		NackRetryTopic: s.retryFrom, AckTimeout: s.timeout, AckTimeoutBackoff: s.timeoutBackoff, Reconsume: s.reconsumeBackoff,
		MaxDeliveries: limits.MaxDeliveries, MaxReconsumes: limits.MaxReconsumes, RetryTopic: x.retryTopic,
		InitialSubscriptionName: limits.InitialSubscriptionName, OmitCause: s.omitsCause(), DeadBeforeTTL: s.ttl, Source: s.source, MemoryLimit: s.memoryLimit, AttemptLog: s.attempts != nil}
	if known {
		o.Type, o.BatchIndexAcknowledgment = typeName(opts.Type), opts.EnableBatchIndexAcknowledgment
		if o.ReceiverQueueSize = defaultQueue; opts.ReceiverQueueSize > 0 {
			o.ReceiverQueueSize = opts.ReceiverQueueSize
		}
	}
	switch {
	case x.own != nil:
		o.DeadLetterTopic = x.own.DeadLetterTopic()
	case s.reconsumer != nil:
		o.DeadLetterTopic = s.reconsumer.DeadLetterTopic()
	}
	for _, limit := range []*uint32{&o.MaxDeliveries, &o.MaxReconsumes} {
		if *limit == reconsume.Unlimited {
			*limit = 0
		}
	}
	return o
}
