package redelivery

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"

	"github.com/pulsar-redelivery/redelivery/acktimeout"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/partition"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/nack"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// settings are the options of a Consumer, combined.
type settings struct {
	Options                                    // some are set by options, the others by fillOptions
	nackBy           string                    // the option that set Nack
	timeoutGiven     bool                      // WithAckTimeout was given; it may be 0
	ackTimeout       backoff.RedeliveryBackoff // from AckTimeout and AckTimeoutBackoff; nil for none
	reconsumer       *reconsume.Reconsumer
	client           pulsar.Client     // publishes retries and dead letters; nil for none
	subscriber       pulsar.Client     // client of Subscribe, else that of WithClient; nil for none
	deadLetters      *DeadLetterPolicy // of WithDeadLetterPolicy; nil for none
	resolution       time.Duration     // 0 for the default
	logger           *slog.Logger
	observers        []Observer
	unchecked        bool        // WithoutChecks
	withoutIndexAcks bool        // WithoutBatchIndexAcks
	attempts         *AttemptLog // nil for none

	// Set by prepare or prepareWrapped:
	opts               pulsar.ConsumerOptions // the caller's, as prepare changed them; after Wrap as far as known
	deadLetterPolicy   DeadLetterPolicy       // of all options together; MaxReconsumes is 0 without dead letters
	retries            bool                   // the consumer has a retry topic of its own
	indexAcks          partition.IndexAcks    // SentIndexAcks if prepare switched EnableBatchIndexAcknowledgment on
	nacksUndecryptable bool                   // messages that cannot be decrypted are nacked
	isWrapped          bool                   // by Wrap
	publisher          publishing.Publisher   // nil without retries and dead letters
	owned              *reconsume.Reconsumer  // the publisher's Reconsumer, if Close closes it
	// how long acknowledgements may wait on Failover and Key_Shared, where a new owner handles a message again if its
	// acknowledgement was not sent; 0 for upstream's default
	ackTime time.Duration
}

// warn logs a warning about the options before there is a Consumer.
func (s *settings) warn(msg string, attrs ...any) {
	s.logger.Warn("redelivery: "+msg, attrs...)
}

// setNackBackoff sets the policy of nacks; by is the name of the option.
func (s *settings) setNackBackoff(by string, b backoff.RedeliveryBackoff) error {
	if err := checkPolicy(by, b); err != nil {
		return err
	}
	if s.nackBy != "" && s.nackBy != by {
		return both(s.nackBy, by)
	}
	s.Nack, s.nackBy = b, by
	return nil
}

// adopt takes over the fields of pulsar.ConsumerOptions about redelivery.
func (s *settings) adopt() error {
	opts, delay := &s.opts, s.opts.NackRedeliveryDelay
	if err := checkDuration("ConsumerOptions.NackRedeliveryDelay", delay, true); err != nil {
		return err
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

// checkAndAdopt checks the options, and adopts those of s.opts.
func (s *settings) checkAndAdopt() error {
	opts := &s.opts
	s.deadLetterPolicy = s.combineDeadLetters()
	// RetryEnable of a zero-queue consumer is left to upstream, which refuses it
	s.retries = s.reconsumer == nil &&
		(opts.RetryEnable && !opts.EnableZeroQueueConsumer || s.Reconsume != nil && !s.isWrapped)
	if opts.EnableZeroQueueConsumer {
		// otherwise the application could have two messages at the same time: one from memory and one that the inner
		// Receive asked for
		s.MemoryLimit = 0
	}
	if err := cmp.Or(s.checkDeadLetters(), s.checkReconsumer(), s.checkRetries(), s.checkOthers()); err != nil {
		return err
	}
	if err := s.adopt(); err != nil {
		return err
	}
	if s.Nack == nil {
		s.Nack = backoff.Fixed(nack.DefaultDelay)
	}
	if s.AckTimeout > 0 {
		s.ackTimeout = acktimeout.Backoff(s.AckTimeout, s.AckTimeoutBackoff)
	}
	return nil
}

// combineDeadLetters combines the options about dead letters in s and s.opts. As in upstream, RetryEnable includes dead
// letters.
func (s *settings) combineDeadLetters() (p DeadLetterPolicy) {
	opts := &s.opts
	switch {
	case s.deadLetters != nil:
		p = *s.deadLetters
		p.MaxReconsumes = cmp.Or(p.MaxReconsumes, p.MaxDeliveries, reconsume.Unlimited)
	case opts.DLQ != nil:
		p = DeadLetterPolicyOf(*opts.DLQ)
	case s.Reconsume != nil: // the last delay repeats until the message is processed (PIP-94)
		p.MaxReconsumes = reconsume.Unlimited
	case s.isWrapped && s.client != nil && s.reconsumer == nil:
		p.MaxReconsumes = publishing.MaxReconsumes
	case !s.isWrapped && opts.RetryEnable:
		p.MaxDeliveries, p.MaxReconsumes = publishing.MaxReconsumes, publishing.MaxReconsumes
	}
	return p
}

// checkDeadLetters refuses options about dead letters that exclude each other, or that lack a client to publish with.
func (s *settings) checkDeadLetters() error {
	opts, d, publishes := &s.opts, s.deadLetters, s.client != nil || s.reconsumer != nil
	switch {
	case opts.DLQ != nil && opts.DLQ.MaxDeliveries == 0:
		return invalid("ConsumerOptions.DLQ.MaxDeliveries", 0, "1 or more")
	case opts.DLQ != nil && d != nil:
		return both("ConsumerOptions.DLQ", "WithDeadLetterPolicy")
	case !publishes && s.Reconsume != nil:
		return invalid("WithReconsumeBackoff", "set", "WithClient too")
	case !publishes && d != nil && !d.Discard:
		return invalid("WithDeadLetterPolicy", "set", withClient)
	case !publishes && s.retries:
		return invalid("ConsumerOptions.RetryEnable", true, withClient)
	case !publishes && opts.DLQ != nil:
		return invalid("ConsumerOptions.DLQ", "set", withClient)
	case d != nil && d.MaxDeliveries == 0 && d.MaxReconsumes == 0 && s.reconsumer == nil && s.Reconsume == nil:
		return fmt.Errorf("%w: WithDeadLetterPolicy has neither MaxDeliveries nor MaxReconsumes, want one of them, "+
			"or reconsume.Unlimited if only DeadLetter and worker.Permanent make dead letters",
			ErrInvalidOption)
	case s.DeadBeforeTTL > 0 && s.deadLetterPolicy.Discard:
		return invalid("WithDeadBeforeTTL", s.DeadBeforeTTL, "none with DeadLetterPolicy.Discard")
	case s.DeadBeforeTTL > 0 && s.deadLetterPolicy.MaxReconsumes == 0 && s.reconsumer == nil:
		return invalid("WithDeadBeforeTTL", s.DeadBeforeTTL,
			"WithDeadLetterPolicy, ConsumerOptions.DLQ or WithReconsumer too")
	}
	return nil
}

// checkReconsumer refuses options that contradict WithReconsumer.
func (s *settings) checkReconsumer() error {
	switch {
	case s.reconsumer == nil:
		return nil
	case s.Reconsume != nil:
		return both("WithReconsumer", "WithReconsumeBackoff")
	case s.deadLetterPolicy.Discard:
		return invalid("DeadLetterPolicy.Discard", true, "false with WithReconsumer")
	case s.isWrapped: // the topics' namespace is not known
		return nil
	}
	for kind, topics := range map[string][2]string{ // the topic of the options, that of the Reconsumer
		"dead letter": {s.deadLetterPolicy.Topic, s.reconsumer.DeadLetterTopic()},
		"retry":       {s.deadLetterPolicy.RetryTopic, s.reconsumer.RetryTopic()},
	} {
		if topics[0] != "" && topicname.In(originOf(s.opts), topics[0]) != topics[1] {
			return invalid("the "+kind+" topic", topics[0], "the "+topics[1]+" of WithReconsumer")
		}
	}
	return nil
}

// checkRetries refuses options about retries that do not fit the consumer.
func (s *settings) checkRetries() error {
	opts, noRetryTopic := &s.opts, !s.retries && s.reconsumer == nil
	switch {
	case s.retries && opts.EnableZeroQueueConsumer:
		return invalid("ConsumerOptions.EnableZeroQueueConsumer", true, "false with a retry topic")
	case noRetryTopic && s.isWrapped && (s.Reconsume != nil || s.deadLetters.needsRetries()):
		return invalid("the wrapped consumer", "not subscribed to its retry topic",
			"RetryEnable in its options, or SubscribeWith; WithReconsumeBackoff, RetryTopic, and MaxReconsumes "+
				"without MaxDeliveries need that topic")
	case noRetryTopic && s.deadLetters.needsRetries():
		return fmt.Errorf("%w: WithDeadLetterPolicy has RetryTopic, or MaxReconsumes without MaxDeliveries, want "+
			"RetryEnable or WithReconsumeBackoff too", ErrInvalidOption)
	case noRetryTopic && s.NackRetryTopic > 0:
		return fmt.Errorf("%w: WithNackRetryTopic is set, want RetryEnable, WithReconsumeBackoff or WithReconsumer too",
			ErrInvalidOption)
	case !brokerDelays(s.opts.Type) && (s.Reconsume != nil || s.NackRetryTopic > 0):
		return invalid("ConsumerOptions.Type", typeNames[opts.Type], "Shared or Key_Shared with WithReconsumeBackoff "+
			"and WithNackRetryTopic: the broker delays on no other")
	}
	return nil
}

// withClient is the remedy if there is no client to publish with.
const withClient = "WithClient or WithReconsumer too"

// checkOthers refuses options that do not go together, except those about dead letters and retries.
func (s *settings) checkOthers() error {
	opts, zeroQueue, d := &s.opts, s.opts.EnableZeroQueueConsumer, s.opts.Decryption
	switch {
	case s.AckTimeoutBackoff != nil && !s.timeoutGiven:
		return fmt.Errorf("%w: WithAckTimeoutRedeliveryBackoff is set, want WithAckTimeout too", ErrInvalidOption)
	case s.attempts != nil && s.client == nil:
		return invalid("WithAttemptLog", "set", "WithClient too")
	case s.attempts != nil && opts.SubscriptionMode == pulsar.NonDurable:
		return invalid("ConsumerOptions.SubscriptionMode", "NonDurable",
			"Durable with WithAttemptLog: the broker forgets a subscription that is NonDurable")
	case s.isWrapped && s.resolution != 0:
		return invalid("WithRedeliveryResolution", s.resolution,
			"none with Wrap, which cannot change how often a consumer asks the broker")
	case zeroQueue && s.Source == FromMemory:
		return invalid("WithRedeliveryFrom", FromMemory,
			"FromAuto or FromBroker with EnableZeroQueueConsumer, which keeps no message in memory")
	case zeroQueue && opts.MaxReconnectToBroker != nil:
		return invalid("ConsumerOptions.MaxReconnectToBroker", *opts.MaxReconnectToBroker,
			"nil with EnableZeroQueueConsumer: pulsar-client-go's Receive would not return when the consumer gives up")
	case zeroQueue && d != nil && d.ConsumerCryptoFailureAction == crypto.ConsumerCryptoFailureActionConsume:
		return invalid("ConsumerOptions.Decryption.ConsumerCryptoFailureAction", "Consume",
			"another with EnableZeroQueueConsumer: pulsar-client-go panics on messages that it cannot decrypt")
	}
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
	NackRetryTopic    time.Duration             // nacks with at least this delay go to the retry topic; 0 for none
	AckTimeout        time.Duration             // 0 for none
	AckTimeoutBackoff backoff.RedeliveryBackoff // delays added to AckTimeout; nil for none
	Reconsume         backoff.RedeliveryBackoff // policy of the retry topic; nil for backoff.DefaultDelayLevels
	MaxDeliveries     uint32                    // 0 for no limit
	MaxReconsumes     uint32                    // 0 for no limit; with WithReconsumer its own options hold

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
	o := c.settings.Options
	o.Topics = slices.Clone(o.Topics)
	return o
}

// fillOptions sets the fields of Options that no option sets by itself.
func (s *settings) fillOptions() {
	o, policy := &s.Options, &s.deadLetterPolicy
	o.Subscription, o.AttemptLog = s.opts.SubscriptionName, s.attempts != nil
	o.MaxDeliveries, o.MaxReconsumes = policy.MaxDeliveries, policy.MaxReconsumes
	o.InitialSubscriptionName, o.OmitCause = policy.InitialSubscriptionName, policy.OmitCause
	for _, limit := range []*uint32{&o.MaxDeliveries, &o.MaxReconsumes} {
		if *limit == reconsume.Unlimited {
			*limit = 0
		}
	}
	if !s.isWrapped {
		o.Topics, o.TopicsPattern, o.Type = topicsOf(s.opts), s.opts.TopicsPattern, typeNames[s.opts.Type]
		o.ReceiverQueueSize, o.BatchIndexAcknowledgment = s.queue(), s.opts.EnableBatchIndexAcknowledgment
	}
}
