package config

import (
	"cmp"
	"fmt"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
)

// Subscribe calls redelivery.Subscribe with opts and the file's settings of a consumer, as ConsumerOptions returns
// them. options are applied after those of the file. An option that contradicts a key of the file, such as
// WithNackRedeliveryDelay with nackRedeliveryBackoff, is an error.
func (c *Config) Subscribe(client pulsar.Client, name string, opts pulsar.ConsumerOptions,
	options ...redelivery.Option) (
	*redelivery.Consumer, error) {
	opts, ofFile, err := c.ConsumerOptions(name, opts)
	if err != nil {
		return nil, err
	}
	return redelivery.Subscribe(client, opts, append(ofFile, options...)...)
}

// ConsumerOptions returns the arguments for redelivery.SubscribeWith, or for Subscribe with more options: opts, and the
// result of Options. If the file has settings of dead letters and opts has a DLQ, ConsumerOptions moves the DLQ into
// the options: fields of the DLQ apply if the file does not set them, and the returned DLQ is nil. ConsumerOptions does
// not change anything that opts points to.
func (c *Config) ConsumerOptions(
	name string, opts pulsar.ConsumerOptions) (pulsar.ConsumerOptions, []redelivery.Option, error) {
	found, err := c.consumer(name)
	if err != nil {
		return pulsar.ConsumerOptions{}, nil, err
	}
	if opts.DLQ == nil || !found.setsDeadLetters() {
		return opts, found.options(nil), nil
	}
	dlq := *opts.DLQ
	if !opts.RetryEnable && found.ReconsumeBackoff == nil { // upstream would ignore it, a DeadLetterPolicy refuses it
		dlq.RetryLetterTopic = ""
	}
	options := found.options(&dlq)
	opts.DLQ = nil
	return opts, options, nil
}

// Options returns the file's settings of a consumer as options for redelivery.Subscribe, SubscribeWith or Wrap.
// Settings of retries or dead letters need a client: that of Subscribe, or redelivery.WithClient. If the file has
// settings of dead letters, pulsar.ConsumerOptions must not have a DLQ. The method ConsumerOptions moves the DLQ into
// the options.
func (c *Config) Options(consumer string) ([]redelivery.Option, error) {
	found, err := c.consumer(consumer)
	if err != nil {
		return nil, err
	}
	return found.options(nil), nil
}

func (c *Config) consumer(name string) (Consumer, error) {
	found, ok := c.Consumers[name]
	if !ok {
		return Consumer{}, fmt.Errorf("config: consumer is %q, want one of the file's (%s)", name,
			namesOf(c.Consumers))
	}
	return found, nil
}

// options returns the options of the file. dlq, if it is not nil, is the program's own dead letter policy.
func (c Consumer) options(dlq *pulsar.DLQPolicy) []redelivery.Option {
	var options []redelivery.Option
	if c.NackRedeliveryBackoff != nil {
		options = append(options, redelivery.WithNackRedeliveryBackoff(c.NackRedeliveryBackoff))
	}
	if c.NackRedeliveryDelay != nil {
		options = append(options, redelivery.WithNackRedeliveryDelay(*c.NackRedeliveryDelay))
	}
	if c.NackRetryTopic != 0 {
		options = append(options, redelivery.WithNackRetryTopic(c.NackRetryTopic))
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
	if c.setsDeadLetters() {
		options = append(options, redelivery.WithDeadLetterPolicy(c.deadLetters(dlq)))
	}
	if c.DeadBeforeTTL != 0 {
		options = append(options, redelivery.WithDeadBeforeTTL(c.DeadBeforeTTL))
	}
	if c.AttemptLog {
		options = append(options, redelivery.WithAttemptLog(c.attemptLog()))
	}
	if c.MemoryLimit != nil {
		options = append(options, redelivery.WithMemoryLimit(*c.MemoryLimit))
	}
	if c.RedeliveryFrom != "" {
		options = append(options, redelivery.WithRedeliveryFrom(c.RedeliveryFrom))
	}
	if c.Resolution != 0 {
		options = append(options, redelivery.WithRedeliveryResolution(c.Resolution))
	}
	if c.WithoutChecks {
		options = append(options, redelivery.WithoutChecks())
	}
	return options
}

func (c Consumer) attemptLog() redelivery.AttemptLog {
	return redelivery.AttemptLog{Topic: c.AttemptLogTopic, OpenTimeout: c.AttemptLogOpenTimeout,
		Optional:  c.AttemptLogOptional,
		Retention: c.AttemptLogRetention}
}

// setsDeadLetters reports whether the file has a setting of a redelivery.DeadLetterPolicy.
func (c Consumer) setsDeadLetters() bool {
	return c.MaxDeliveries > 0 || c.MaxReconsumes > 0 || c.DeadLetterTopic != "" || c.InitialSubscriptionName != "" ||
		c.OmitCause ||
		c.Discard || c.RetryTopic != ""
}

// deadLetters returns the program's dead letter policy with the settings of the file.
func (c Consumer) deadLetters(dlq *pulsar.DLQPolicy) redelivery.DeadLetterPolicy {
	var p redelivery.DeadLetterPolicy
	if dlq != nil {
		p = redelivery.DeadLetterPolicyOf(*dlq)
	}
	if c.MaxDeliveries > 0 {
		p.MaxDeliveries, p.MaxReconsumes = c.MaxDeliveries, 0 // 0: as many as MaxDeliveries
	}
	p.MaxReconsumes = cmp.Or(c.MaxReconsumes, p.MaxReconsumes)
	p.Topic = cmp.Or(c.DeadLetterTopic, p.Topic)
	p.RetryTopic = cmp.Or(c.RetryTopic, p.RetryTopic)
	p.InitialSubscriptionName = cmp.Or(c.InitialSubscriptionName, p.InitialSubscriptionName)
	p.OmitCause, p.Discard = c.OmitCause, c.Discard
	if c.Discard { // no dead letter is published
		p.Topic, p.InitialSubscriptionName, p.ProducerName = "", "", ""
	}
	return p
}
