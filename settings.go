package redelivery

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

// settings is what options and pulsar.ConsumerOptions come to.
type settings struct {
	nackBackoff      backoff.RedeliveryBackoff
	nackBy           string // the option that set it
	timeout          time.Duration
	timeoutBackoff   backoff.RedeliveryBackoff
	ackTimeout       backoff.RedeliveryBackoff // what timeout and timeoutBackoff come to; nil for none
	reconsumeBackoff backoff.RedeliveryBackoff
	reconsumer       *reconsume.Reconsumer
	retryFrom        time.Duration // from which delay a nack goes to the retry topic; 0 for never
	resolution       time.Duration
	innerDelay       time.Duration
	source           Source
	rewinds          bool // the subscription is Exclusive or Failover
	holdLimit        int64
	logger           *slog.Logger
	observers        []Observer
}

func (s *settings) setNackBackoff(by string, b backoff.RedeliveryBackoff) error {
	if err := backoff.Validate(b); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalidOption, by, err)
	}
	if s.nackBy != "" && s.nackBy != by {
		return fmt.Errorf("%w: %s and %s are both set, want one of them", ErrInvalidOption, s.nackBy, by)
	}
	s.nackBackoff, s.nackBy = b, by
	return nil
}

// adopt takes over what pulsar.ConsumerOptions say about redelivery.
func (s *settings) adopt(opts pulsar.ConsumerOptions) error {
	if err := s.checkRetries(opts); err != nil {
		return err
	}
	if opts.EnableZeroQueueConsumer && opts.MaxReconnectToBroker != nil {
		return invalid("ConsumerOptions.MaxReconnectToBroker", *opts.MaxReconnectToBroker,
			"nil with EnableZeroQueueConsumer: upstream's Receive would not return when it gives up")
	}
	if d := opts.Decryption; opts.EnableZeroQueueConsumer && d != nil &&
		d.ConsumerCryptoFailureAction == crypto.ConsumerCryptoFailureActionConsume {
		return invalid("ConsumerOptions.Decryption.ConsumerCryptoFailureAction", "Consume",
			"another with EnableZeroQueueConsumer: upstream panics on what it cannot decrypt")
	}
	if d := opts.NackRedeliveryDelay; d < 0 {
		return invalid("ConsumerOptions.NackRedeliveryDelay", d, "0 or more")
	} else if d > 0 {
		if err := s.setNackBackoff("ConsumerOptions.NackRedeliveryDelay", backoff.Fixed(d)); err != nil {
			return err
		}
	}
	switch { // a policy of one's own wins over the default one, as upstream
	case opts.NackBackoffPolicy != nil:
		return s.setNackBackoff("ConsumerOptions.NackBackoffPolicy", opts.NackBackoffPolicy)
	case opts.EnableDefaultNackBackoffPolicy:
		return s.setNackBackoff("ConsumerOptions.EnableDefaultNackBackoffPolicy", backoff.Exponential{})
	}
	return nil
}

func newSettings(opts *pulsar.ConsumerOptions, options []Option) (*settings, error) {
	s := &settings{holdLimit: DefaultHoldLimit, logger: slog.Default()}
	for i, option := range options {
		if option == nil {
			return nil, invalid(fmt.Sprintf("option %d", i+1), "nil", "an Option")
		}
		if err := option(s); err != nil {
			return nil, err
		}
	}
	if s.reconsumer != nil && s.reconsumeBackoff != nil {
		return nil, fmt.Errorf("%w: WithReconsumer and WithReconsumeBackoff are both set, want one of them", ErrInvalidOption)
	}
	if opts != nil {
		if err := s.adopt(*opts); err != nil {
			return nil, err
		}
		if s.innerDelay != 0 {
			return nil, invalid("WithInnerNackDelay", s.innerDelay, "it with Wrap and a consumer that was not prepared only")
		}
	}
	if s.nackBackoff == nil {
		s.nackBackoff = backoff.Fixed(nack.DefaultDelay)
	}
	if s.timeout > 0 {
		s.ackTimeout = acktimeout.Backoff(s.timeout, s.timeoutBackoff)
	} else if s.timeoutBackoff != nil {
		return nil, fmt.Errorf("%w: WithAckTimeoutRedeliveryBackoff is set, want WithAckTimeout too", ErrInvalidOption)
	}
	return s, nil
}
