package driver

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"

	"github.com/pulsar-redelivery/redelivery/acktimeout"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/nack"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// Settings is what the options of package redelivery come to.
type Settings struct {
	NackBackoff      backoff.RedeliveryBackoff // SetNackBackoff sets it
	nackBy           string                    // the option that set it
	Timeout          time.Duration
	TimeoutBackoff   backoff.RedeliveryBackoff
	ackTimeout       backoff.RedeliveryBackoff // what Timeout and TimeoutBackoff come to; nil for none
	ReconsumeBackoff backoff.RedeliveryBackoff
	Reconsumer       *reconsume.Reconsumer
	RetryFrom        time.Duration // from which delay a nack goes to the retry topic; 0 for never
	Resolution       time.Duration // 0 for the default
	FastResolution   time.Duration // the default where messages come back through the broker
	Source           Source
	HoldLimit        int64
	Logger           *slog.Logger
}

// Source is redelivery.Source.
type Source uint8

// The sources.
const (
	FromAuto Source = iota
	FromMemory
	FromBroker
)

// SetNackBackoff sets the policy of nacks, by an option of this name.
func (s *Settings) SetNackBackoff(by string, b backoff.RedeliveryBackoff) error {
	if err := backoff.Validate(b); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalidOption, by, err)
	}
	if s.nackBy != "" && s.nackBy != by {
		return fmt.Errorf("%w: %s and %s are both set, want one of them", ErrInvalidOption, s.nackBy, by)
	}
	s.NackBackoff, s.nackBy = b, by
	return nil
}

// adopt takes over what pulsar.ConsumerOptions say about redelivery.
func (s *Settings) adopt(opts pulsar.ConsumerOptions) error {
	if err := s.checkRetries(opts); err != nil {
		return err
	}
	if opts.EnableZeroQueueConsumer && opts.MaxReconnectToBroker != nil {
		return Invalid("ConsumerOptions.MaxReconnectToBroker", *opts.MaxReconnectToBroker,
			"nil with EnableZeroQueueConsumer: upstream's Receive would not return when it gives up")
	}
	if d := opts.Decryption; opts.EnableZeroQueueConsumer && d != nil &&
		d.ConsumerCryptoFailureAction == crypto.ConsumerCryptoFailureActionConsume {
		return Invalid("ConsumerOptions.Decryption.ConsumerCryptoFailureAction", "Consume",
			"another with EnableZeroQueueConsumer: upstream panics on what it cannot decrypt")
	}
	if d := opts.NackRedeliveryDelay; d < 0 {
		return Invalid("ConsumerOptions.NackRedeliveryDelay", d, "0 or more")
	} else if d > 0 {
		if err := s.SetNackBackoff("ConsumerOptions.NackRedeliveryDelay", backoff.Fixed(d)); err != nil {
			return err
		}
	}
	switch { // a policy of one's own wins over the default one, as upstream
	case opts.NackBackoffPolicy != nil:
		return s.SetNackBackoff("ConsumerOptions.NackBackoffPolicy", opts.NackBackoffPolicy)
	case opts.EnableDefaultNackBackoffPolicy:
		return s.SetNackBackoff("ConsumerOptions.EnableDefaultNackBackoffPolicy", backoff.Exponential{})
	}
	return nil
}

// complete checks what options have set, and adds what opts say; nil if they are not known.
func (s *Settings) complete(opts *pulsar.ConsumerOptions) error {
	if s.Reconsumer != nil && s.ReconsumeBackoff != nil {
		return fmt.Errorf("%w: WithReconsumer and WithReconsumeBackoff are both set, want one of them", ErrInvalidOption)
	}
	if opts != nil {
		if err := s.adopt(*opts); err != nil {
			return err
		}
	}
	if s.NackBackoff == nil {
		s.NackBackoff = backoff.Fixed(nack.DefaultDelay)
	}
	if s.Timeout > 0 {
		s.ackTimeout = acktimeout.Backoff(s.Timeout, s.TimeoutBackoff)
	} else if s.TimeoutBackoff != nil {
		return fmt.Errorf("%w: WithAckTimeoutRedeliveryBackoff is set, want WithAckTimeout too", ErrInvalidOption)
	}
	return nil
}

// CheckWithoutClient refuses what only Subscribe can do, which has a client to publish by.
func (s *Settings) CheckWithoutClient() error {
	if s.ReconsumeBackoff != nil {
		return Invalid("WithReconsumeBackoff", s.ReconsumeBackoff, "Subscribe in place of Prepare and Wrap, or WithReconsumer")
	}
	if s.RetryFrom > 0 && s.Reconsumer == nil {
		return Invalid("WithNackRetryTopic", s.RetryFrom, "Subscribe in place of Prepare and Wrap, or WithReconsumer too")
	}
	return nil
}

// Unprepared completes the settings of a consumer that was not prepared, and says how late its messages may come.
func (s *Settings) Unprepared(consumer pulsar.Consumer) error {
	if err := s.complete(nil); err != nil {
		return err
	}
	if err := s.CheckWithoutClient(); err != nil {
		return err
	}
	if s.Resolution != 0 {
		return Invalid("WithRedeliveryResolution", s.Resolution, "it with Subscribe or Prepare only")
	}
	what := "nacked messages wait in memory; what does not fit the hold limit comes late, by its own NackRedeliveryDelay and a third more"
	if s.Source == FromBroker {
		what = "nacked messages come late, by its own NackRedeliveryDelay and a third more"
	}
	s.Logger.Warn("redelivery: the wrapped consumer was not prepared: "+what, "consumer", consumer.Name(), "subscription", consumer.Subscription())
	return nil
}
