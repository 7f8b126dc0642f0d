package redelivery

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

const (
	// DefaultHoldLimit is how many bytes of messages are kept in memory by default.
	DefaultHoldLimit = 16 << 20
	// DefaultResolution is the resolution of requests where redelivery depends on them, up to 20 partitions.
	DefaultResolution = 10 * time.Millisecond

	slowResolution = 100 * time.Millisecond // where requests are the exception, up to two partitions

	minResolution, maxResolution = time.Millisecond, time.Minute
)

// Option configures a Consumer. It is checked when Subscribe, Prepare or Wrap applies it: an error satisfies errors.Is with
// ErrInvalidOption. Of one that is given twice the last counts.
type Option func(*settings) error

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
// Acknowledging, nacking and reconsuming a message end its timeout; InProgress restarts it. An acknowledgement after the
// timeout still counts unless the application has already received the message again.
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
// delay survives a restart of the process. Shorter delays wait in the Consumer, which is more precise. The retry keeps the
// redelivery count. atLeast must be more than 0. A retry topic is needed: RetryEnable or WithReconsumeBackoff.
//
// It applies to Nack and NackWithDelay, but not to NackID and ack timeouts, where the Consumer has no message to publish. If
// the retry cannot be published, the message waits in the Consumer. DLQPolicy.MaxDeliveries limits these retries as it limits
// all others.
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
// retries and dead letters with r. The caller closes r. The consumer then does not subscribe to the retry topic on its own.
func WithReconsumer(r *reconsume.Reconsumer) Option {
	return func(s *settings) error {
		if r == nil {
			return invalid("WithReconsumer", "nil", "a *reconsume.Reconsumer")
		}
		s.reconsumer = r
		return nil
	}
}

// WithRedeliveryResolution (default: 10 ms up to 20 partitions, from there half a millisecond for each; where requests are the
// exception, as by default on Exclusive, Failover and Key_Shared without an ack timeout, 100 ms up to two partitions, from there
// 50 ms for each) sets how often the consumer flushes requests for redelivery: a redelivery that the broker is asked for is late
// by at most this and the broker's time. Every partition has a ticker of a little less than this period, which is what an
// idle consumer costs. From 1 ms to 1 minute.
func WithRedeliveryResolution(d time.Duration) Option {
	return func(s *settings) error {
		if d < minResolution || d > maxResolution {
			return invalid("WithRedeliveryResolution", d, fmt.Sprintf("%v to %v", minResolution, maxResolution))
		}
		s.resolution = d
		return nil
	}
}

// Source says where a nacked message waits until it is due.
type Source uint8

const (
	// FromAuto keeps messages in memory on Exclusive, Failover and Key_Shared, and those of batches on Shared. Others on
	// Shared wait at the broker, which sends them to whichever consumer is free; so does one of a batch whose siblings are
	// settled, if EnableBatchIndexAcknowledgment is set. A consumer that was not prepared asks the broker for all.
	FromAuto Source = iota
	// FromMemory keeps all messages in memory: they come back to this Consumer, on time, unless the connection is lost.
	FromMemory
	// FromBroker keeps none: each is asked for when it is due.
	FromBroker
)

// WithRedeliveryFrom (default: FromAuto) sets where a nacked message waits until it is due. From memory it is late only by
// scheduling. The broker adds up to a resolution and a round trip, and on Exclusive and Failover it sends all unacknowledged
// messages again.
//
// Messages that do not fit the hold limit, NackID and ack timeouts use the broker. After a lost connection, or when a
// Failover partition becomes inactive, messages in memory may belong to another consumer. They are dropped and come back when
// the broker sends them again. Clearing or skipping a backlog does not affect messages in memory.
func WithRedeliveryFrom(source Source) Option {
	return func(s *settings) error {
		if source > FromBroker {
			return invalid("WithRedeliveryFrom", source, "FromAuto, FromMemory or FromBroker")
		}
		s.source = source
		return nil
	}
}

// WithInnerNackDelay (default: unknown, so that redeliveries may be late by up to 4/3 of that delay) tells Wrap the
// NackRedeliveryDelay of a consumer that was not prepared. Wrap then requests messages earlier by that delay and holds them
// until they are due. On a Shared subscription another consumer may receive such a message early.
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

// WithHoldLimit (default: 16 MiB) sets how many bytes of messages are kept here until they are due, in all partitions
// together: nacked ones that wait in memory, and what the broker sent early. Each counts its payload and 512 bytes; of a batch
// the whole payload counts, once, since one message keeps it alive. What does not fit is dropped, and asked for when due; 0
// keeps nothing but, up to 1 MiB, what is about to be published to the retry or dead letter topic.
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
