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

const (
	// DefaultHoldLimit is how many bytes of early copies are held back by default.
	DefaultHoldLimit = 16 << 20
	// DefaultResolution is the resolution of redelivery up to 20 partitions; from there it is half a millisecond for each
	// partition.
	DefaultResolution = 10 * time.Millisecond

	minResolution, maxResolution = time.Millisecond, time.Minute
	maxAhead                     = time.Minute
)

// Option configures a Consumer. It is checked when Subscribe, Prepare or Wrap applies it: an error satisfies errors.Is with
// ErrInvalidOption. Of one that is given twice the last counts.
type Option func(*settings) error

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
	ahead            time.Duration // below 0 for the default
	holdLimit        int64
	logger           *slog.Logger
}

func invalid(option string, value any, want string) error {
	return fmt.Errorf("%w: %s is %v, want %s", ErrInvalidOption, option, value, want)
}

// WithNackRedeliveryBackoff (default: what pulsar.ConsumerOptions say, or one minute) makes the delay of a negatively
// acknowledged message grow with its redelivery count (PIP-106), which is 0 at the first delivery.
//
// It does not go together with WithNackRedeliveryDelay, nor with NackRedeliveryDelay, NackBackoffPolicy or
// EnableDefaultNackBackoffPolicy of pulsar.ConsumerOptions.
func WithNackRedeliveryBackoff(b backoff.RedeliveryBackoff) Option {
	return func(s *settings) error { return s.setNackBackoff("WithNackRedeliveryBackoff", b) }
}

// WithNackRedeliveryDelay (default: what pulsar.ConsumerOptions say, or one minute) delays every negatively acknowledged
// message by d; 0 is at once.
//
// It does not go together with WithNackRedeliveryBackoff, nor with NackRedeliveryDelay, NackBackoffPolicy or
// EnableDefaultNackBackoffPolicy of pulsar.ConsumerOptions.
func WithNackRedeliveryDelay(d time.Duration) Option {
	return func(s *settings) error {
		if d < 0 {
			return invalid("WithNackRedeliveryDelay", d, "0 or more")
		}
		return s.setNackBackoff("WithNackRedeliveryDelay", backoff.Fixed(d))
	}
}

// WithAckTimeout (default: none) redelivers a message that the application does not settle within d after it took it: after
// Receive returned, or the send on Chan completed. It must be more than 0.
//
// Acknowledging, nacking and reconsuming a message end its timeout; InProgress starts it anew. An acknowledgement that
// comes after the timeout still counts: if the application has not taken the message again it does not get it again.
func WithAckTimeout(d time.Duration) Option {
	return func(s *settings) error {
		if d <= 0 {
			return invalid("WithAckTimeout", d, "more than 0")
		}
		s.timeout = d
		return nil
	}
}

// WithAckTimeoutRedeliveryBackoff (default: none) adds a delay that grows with the redelivery count to the ack timeout
// (PIP-130): a message is redelivered after d + b.Next(redeliveryCount). A negative delay of b counts as 0. It needs
// WithAckTimeout.
func WithAckTimeoutRedeliveryBackoff(b backoff.RedeliveryBackoff) Option {
	return func(s *settings) error {
		if err := backoff.Validate(b); err != nil {
			return fmt.Errorf("%w: WithAckTimeoutRedeliveryBackoff: %w", ErrInvalidOption, err)
		}
		s.timeoutBackoff = b
		return nil
	}
}

// WithReconsumeBackoff (default: none; with RetryEnable in pulsar.ConsumerOptions the levels of backoff.DefaultDelayLevels)
// subscribes to the retry topic too and gives the delays of ReconsumeLaterNext (PIP-94): backoff.DelayLevels, or any policy.
//
// The topics and the number of deliveries are those of DLQ in pulsar.ConsumerOptions, or their defaults there. It is for
// Subscribe, and for Shared and Key_Shared: the broker delays on no other type.
func WithReconsumeBackoff(b backoff.RedeliveryBackoff) Option {
	return func(s *settings) error {
		if err := backoff.Validate(b); err != nil {
			return fmt.Errorf("%w: WithReconsumeBackoff: %w", ErrInvalidOption, err)
		}
		s.reconsumeBackoff = b
		return nil
	}
}

// WithNackRetryTopic (default: none) moves a nacked message to the retry topic if its delay is atLeast or longer, so that the
// delay outlives the process; shorter ones wait here, which is more precise. Its redelivery count goes along. It must be more
// than 0, and needs a retry topic: RetryEnable or WithReconsumeBackoff.
//
// It is for Nack and NackWithDelay: of NackID and of an ack timeout there is no message to publish. Until the retry is
// published, and if it cannot be, the message waits here. As with every reconsume, DLQPolicy.MaxDeliveries limits how often.
func WithNackRetryTopic(atLeast time.Duration) Option {
	return func(s *settings) error {
		if atLeast <= 0 {
			return invalid("WithNackRetryTopic", atLeast, "more than 0")
		}
		s.retryFrom = atLeast
		return nil
	}
}

// WithReconsumer (default: none; Subscribe makes one where RetryEnable, DLQ or WithReconsumeBackoff ask for it) publishes
// retries and dead letters by r, which stays the caller's to close. With it the consumer subscribes to no retry topic by itself.
func WithReconsumer(r *reconsume.Reconsumer) Option {
	return func(s *settings) error {
		if r == nil {
			return invalid("WithReconsumer", "nil", "a *reconsume.Reconsumer")
		}
		s.reconsumer = r
		return nil
	}
}

// WithRedeliveryResolution (default: 10 ms up to 20 partitions, from there half a millisecond for each) sets how often the
// consumer flushes requests for redelivery: a redelivery is late by at most this and the broker's time. Every partition has a
// ticker of a little less than this period, which is what an idle consumer costs. From 1 ms to 1 minute.
func WithRedeliveryResolution(d time.Duration) Option {
	return func(s *settings) error {
		if d < minResolution || d > maxResolution {
			return invalid("WithRedeliveryResolution", d, fmt.Sprintf("%v to %v", minResolution, maxResolution))
		}
		s.resolution = d
		return nil
	}
}

// WithRedeliveryAhead (default: the resolution plus 10 ms on Exclusive, Failover and Key_Shared; 0, not ahead, on Shared) asks
// the broker for a nacked message d before it is due, and holds it until then, so that it is handed out on time rather than
// up to the resolution and the broker's time late. From 0 to 1 minute.
//
// On Exclusive, Failover and Key_Shared a message can only come here again. On Shared another consumer may get it that much
// too early; a Shared consumer that is the only one may set it. What would not fit the hold limit is asked for when it is due.
func WithRedeliveryAhead(d time.Duration) Option {
	return func(s *settings) error {
		if d < 0 || d > maxAhead {
			return invalid("WithRedeliveryAhead", d, fmt.Sprintf("0s to %v", maxAhead))
		}
		s.ahead = d
		return nil
	}
}

// WithInnerNackDelay (default: unknown, so that redeliveries may be late by up to 4/3 of that delay) tells Wrap the
// NackRedeliveryDelay that a consumer which was not prepared was created with: messages are then asked for that much sooner,
// and held until they are due. On a shared subscription another consumer may get a message that was asked for ahead.
//
// It is for Wrap only.
func WithInnerNackDelay(d time.Duration) Option {
	return func(s *settings) error {
		if d <= 0 {
			return invalid("WithInnerNackDelay", d, "more than 0")
		}
		s.innerDelay = d
		return nil
	}
}

// WithHoldLimit (default: 16 MiB) sets how many bytes of messages that the broker sent early are held back until they are
// due, in all partitions together; each counts its payload and 512 bytes. What does not fit is dropped, and asked for again
// when due; 0 holds nothing.
func WithHoldLimit(bytes int64) Option {
	return func(s *settings) error {
		if bytes < 0 {
			return invalid("WithHoldLimit", bytes, "0 or more")
		}
		s.holdLimit = bytes
		return nil
	}
}

// WithLogger (default: slog.Default()) sets where the Consumer reports what it cannot return as an error. Payloads and
// properties of messages are never logged.
func WithLogger(logger *slog.Logger) Option {
	return func(s *settings) error {
		if logger == nil {
			return invalid("WithLogger", "nil", "a *slog.Logger")
		}
		s.logger = logger
		return nil
	}
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
	s := &settings{holdLimit: DefaultHoldLimit, logger: slog.Default(), ahead: -1}
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
