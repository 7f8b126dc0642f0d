package redelivery

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"

	"github.com/pulsar-redelivery/redelivery/acktimeout"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/durations"
	"github.com/pulsar-redelivery/redelivery/internal/policies"
	"github.com/pulsar-redelivery/redelivery/nack"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// settings are the combined options of a Consumer.
type settings struct {
	nackBackoff      backoff.RedeliveryBackoff // setNackBackoff sets it
	nackBy           string                    // the option that set nackBackoff
	timeout          time.Duration
	timeoutGiven     bool // WithAckTimeout was given; it may be 0
	timeoutBackoff   backoff.RedeliveryBackoff
	ackTimeout       backoff.RedeliveryBackoff // from timeout and timeoutBackoff; nil for none
	reconsumeBackoff backoff.RedeliveryBackoff
	reconsumer       *reconsume.Reconsumer
	client           pulsar.Client // publishes retries and dead letters; nil for none
	deadLetters      *DeadLetterPolicy
	ttl              time.Duration // of the namespace; messages become dead letters before it ends; 0 for none
	retryFrom        time.Duration // nacks with at least this delay go to the retry topic; 0 for none
	resolution       time.Duration // 0 for the default
	source           Source
	memoryLimit      int64
	logger           *slog.Logger
	observers        []Observer
	unchecked        bool        // WithoutChecks
	withoutIndexAcks bool        // WithoutBatchIndexAcks
	attempts         *AttemptLog // nil for none

	// Set by prepare and Wrap:
	addsIndexAcks      bool // prepare has switched EnableBatchIndexAcknowledgment on
	keepsIndexAcks     bool // the caller says that the broker keeps batch-index acknowledgements
	nacksUndecryptable bool // messages that cannot be decrypted are nacked
	isShared           bool // the subscription is Shared or Key_Shared
	isWrapped          bool // by Wrap
}

// warn logs a warning about the options before there is a Consumer.
func (s *settings) warn(msg string, attrs ...any) {
	s.logger.Warn("redelivery: "+msg, attrs...)
}

// omitsCause reports whether the texts of the application's errors are kept out of dead letters and the log.
func (s *settings) omitsCause() bool { return s.deadLetters != nil && s.deadLetters.OmitCause }

// setNackBackoff sets the policy of nacks; by is the name of the option.
func (s *settings) setNackBackoff(by string, b backoff.RedeliveryBackoff) error {
	if err := policies.Validate(b); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalidOption, by, err)
	}
	if s.nackBy != "" && s.nackBy != by {
		return fmt.Errorf("%w: %s and %s are both set, want one of them", ErrInvalidOption, s.nackBy, by)
	}
	s.nackBackoff, s.nackBy = b, by
	return nil
}

// adopt takes over the fields of pulsar.ConsumerOptions about redelivery.
func (s *settings) adopt(opts pulsar.ConsumerOptions) error {
	if err := s.checkRetries(opts); err != nil {
		return err
	}
	if opts.EnableZeroQueueConsumer && opts.MaxReconnectToBroker != nil {
		return invalid("ConsumerOptions.MaxReconnectToBroker", *opts.MaxReconnectToBroker,
			"nil with EnableZeroQueueConsumer: upstream's Receive would not return when the consumer gives up")
	}
	if d := opts.Decryption; opts.EnableZeroQueueConsumer && d != nil &&
		d.ConsumerCryptoFailureAction == crypto.ConsumerCryptoFailureActionConsume {
		return invalid("ConsumerOptions.Decryption.ConsumerCryptoFailureAction", "Consume",
			"another with EnableZeroQueueConsumer: upstream panics on messages that it cannot decrypt")
	}
	if s.attempts != nil && opts.SubscriptionMode == pulsar.NonDurable {
		return invalid("ConsumerOptions.SubscriptionMode", "NonDurable",
			"Durable with WithAttemptLog: the broker forgets a subscription that is NonDurable")
	}
	delay := opts.NackRedeliveryDelay
	if want := durations.Wanted(delay, true); want != "" {
		return invalid("ConsumerOptions.NackRedeliveryDelay", delay, want)
	}
	policies := opts.NackBackoffPolicy != nil || opts.EnableDefaultNackBackoffPolicy
	if policies && delay > 0 {
		s.warn("a nack policy of ConsumerOptions wins over NackRedeliveryDelay, as in pulsar-client-go",
			"delay", delay, "subscription", opts.SubscriptionName)
	}
	switch { // as in upstream, a given policy wins over the default one
	case opts.NackBackoffPolicy != nil:
		return s.setNackBackoff("ConsumerOptions.NackBackoffPolicy", opts.NackBackoffPolicy)
	case opts.EnableDefaultNackBackoffPolicy:
		return s.setNackBackoff("ConsumerOptions.EnableDefaultNackBackoffPolicy", backoff.Exponential{})
	case delay > 0:
		return s.setNackBackoff("ConsumerOptions.NackRedeliveryDelay", backoff.Fixed(delay))
	}
	return nil
}

// complete checks the options, and adopts opts, which is nil after Wrap.
func (s *settings) complete(opts *pulsar.ConsumerOptions) error {
	if s.reconsumer != nil && s.reconsumeBackoff != nil {
		return fmt.Errorf("%w: WithReconsumer and WithReconsumeBackoff are both set, want one of them",
			ErrInvalidOption)
	}
	if s.client == nil && s.reconsumer == nil {
		switch {
		case s.reconsumeBackoff != nil:
			return invalid("WithReconsumeBackoff", "set", withClient)
		case s.deadLetters != nil && !s.deadLetters.Discard:
			return invalid("WithDeadLetterPolicy", "set", withClient)
		}
	}
	if d := s.deadLetters; d != nil && d.MaxDeliveries == 0 && d.MaxReconsumes == 0 && s.reconsumer == nil &&
		s.reconsumeBackoff == nil {
		return fmt.Errorf("%w: WithDeadLetterPolicy has neither MaxDeliveries nor MaxReconsumes, want one of them; "+
			"if only DeadLetter and worker.Permanent make dead letters, reconsume.Unlimited",
			ErrInvalidOption)
	}
	if s.attempts != nil && s.client == nil {
		return invalid("WithAttemptLog", "set", "WithClient too")
	}
	if s.reconsumer != nil && s.deadLetters != nil && s.deadLetters.Discard {
		return invalid("DeadLetterPolicy.Discard", true, "false with WithReconsumer")
	}
	known := pulsar.ConsumerOptions{}
	if opts != nil {
		known = *opts
		if err := s.adopt(known); err != nil {
			return err
		}
	}
	if err := s.checkTTL(known); err != nil {
		return err
	}
	if s.nackBackoff == nil {
		s.nackBackoff = backoff.Fixed(nack.DefaultDelay)
	}
	if s.timeout > 0 {
		s.ackTimeout = acktimeout.Backoff(s.timeout, s.timeoutBackoff)
	} else if s.timeoutBackoff != nil && !s.timeoutGiven {
		return fmt.Errorf("%w: WithAckTimeoutRedeliveryBackoff is set, want WithAckTimeout too", ErrInvalidOption)
	}
	return nil
}

// wrapped completes the settings for Wrap, and logs how late messages of consumer may come.
func (s *settings) wrapped(consumer pulsar.Consumer) error {
	if err := s.complete(nil); err != nil {
		return err
	}
	s.isWrapped = true
	if s.resolution != 0 {
		return invalid("WithRedeliveryResolution", s.resolution,
			"none with Wrap, which cannot change how often a consumer asks the broker")
	}
	if s.retryFrom > 0 && s.reconsumer == nil && s.reconsumeBackoff == nil {
		return fmt.Errorf("%w: WithNackRetryTopic is set, want WithReconsumeBackoff or WithReconsumer too",
			ErrInvalidOption)
	}
	what := "nacked messages wait in memory; those that do not fit the memory limit come late, by up to 4/3 of the " +
		"consumer's NackRedeliveryDelay"
	if s.source == FromBroker {
		what = "nacked messages come late, by up to 4/3 of the consumer's NackRedeliveryDelay"
	}
	s.logger.Info("redelivery: Wrap does not know the options of the consumer: "+what,
		"consumer", consumer.Name(), "subscription", consumer.Subscription())
	return nil
}

// Options are the effective options of a Consumer, its defaults included. They contain no secrets: no client, producer,
// key or token.
type Options struct {
	Topics        []string // as given; none with a pattern
	TopicsPattern string   // "" if topics are named
	Subscription  string   // its name
	Type          string   // Exclusive, Shared, Failover or Key_Shared

	Nack              backoff.RedeliveryBackoff // policy of nacks
	NackRetryTopic    time.Duration             // nacks from this delay on go to the retry topic; 0 for none
	AckTimeout        time.Duration             // 0 for none
	AckTimeoutBackoff backoff.RedeliveryBackoff // delays added to AckTimeout; nil for none
	Reconsume         backoff.RedeliveryBackoff // policy of the retry topic; nil for backoff.DefaultDelayLevels
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

// Options returns the effective options of the Consumer. After Wrap, topics, type, queue and batch-index
// acknowledgement are unknown: their fields are zero. It may be called concurrently.
func (c *Consumer) Options() Options {
	o := c.options
	o.Topics = slices.Clone(o.Topics)
	return o
}

// optionsOf returns the effective options; opts is nil after Wrap.
func optionsOf(s *settings, x *publisher, subscription string, opts *pulsar.ConsumerOptions) Options {
	known := opts != nil
	if !known {
		opts = &pulsar.ConsumerOptions{}
	}
	limits, _ := s.limits(*opts)
	o := Options{Topics: slices.Clone(topicsOf(*opts)), TopicsPattern: opts.TopicsPattern, Subscription: subscription,
		Nack:           s.nackBackoff,
		NackRetryTopic: s.retryFrom, AckTimeout: s.timeout, AckTimeoutBackoff: s.timeoutBackoff,
		Reconsume:     s.reconsumeBackoff,
		MaxDeliveries: limits.MaxDeliveries, MaxReconsumes: limits.MaxReconsumes, RetryTopic: x.retryTopic,
		InitialSubscriptionName: limits.InitialSubscriptionName, OmitCause: s.omitsCause(), DeadBeforeTTL: s.ttl,
		Source: s.source, MemoryLimit: s.memoryLimit, AttemptLog: s.attempts != nil}
	if known {
		o.Type, o.BatchIndexAcknowledgment = typeName(opts.Type), opts.EnableBatchIndexAcknowledgment
		o.ReceiverQueueSize = defaultQueue
		if opts.ReceiverQueueSize > 0 {
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
