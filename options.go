package redelivery

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// DefaultMemoryLimit is the default of WithMemoryLimit in bytes: 16 MiB.
const DefaultMemoryLimit = 16 << 20

// Option configures a Consumer. It is checked when Subscribe, SubscribeWith or Wrap applies it: an error satisfies
// errors.Is with ErrInvalidOption. A duration below a millisecond is such an error: its unit was probably forgotten, as
// in WithAckTimeout(10). If an option is given twice, the last one counts. An Option may be used for several Consumers,
// also concurrently.
type Option func(*settings) error

// WithNackRedeliveryBackoff (default: that of pulsar.ConsumerOptions, or one minute) delays a negatively acknowledged
// message by b.Next(redeliveryCount) (PIP-106). The count is 0 at the first delivery.
//
// It cannot be combined with WithNackRedeliveryDelay, nor with NackRedeliveryDelay, NackBackoffPolicy or
// EnableDefaultNackBackoffPolicy of pulsar.ConsumerOptions.
func WithNackRedeliveryBackoff(b backoff.RedeliveryBackoff) Option {
	return func(s *settings) error { return s.setNackBackoff("WithNackRedeliveryBackoff", b) }
}

// WithNackRedeliveryDelay (default: that of pulsar.ConsumerOptions, or one minute) delays every negatively acknowledged
// message by d; 0 means at once.
//
// It cannot be combined with WithNackRedeliveryBackoff, nor with NackRedeliveryDelay, NackBackoffPolicy or
// EnableDefaultNackBackoffPolicy of pulsar.ConsumerOptions.
func WithNackRedeliveryDelay(d time.Duration) Option {
	return func(s *settings) error {
		if err := checkDuration("WithNackRedeliveryDelay", d, true); err != nil {
			return err
		}
		return s.setNackBackoff("WithNackRedeliveryDelay", backoff.Fixed(d))
	}
}

// WithAckTimeout (default: none) redelivers a message that the application does not settle within d. The timeout starts
// when the application takes the message: when Receive returns, or when the send on Chan completes. 0 means none; a
// negative d is an error.
//
// Acknowledging, nacking or reconsuming a message ends its timeout; InProgress restarts it. An acknowledgement after
// the timeout still counts, even if the application has already received the message again.
func WithAckTimeout(d time.Duration) Option {
	return func(s *settings) error {
		s.AckTimeout, s.timeoutGiven = d, true
		return checkDuration("WithAckTimeout", d, true)
	}
}

// WithAckTimeoutRedeliveryBackoff (default: none) adds a delay to the ack timeout (PIP-130): a message is redelivered
// after timeout + b.Next(redeliveryCount). A negative delay of b counts as 0. The option needs WithAckTimeout.
func WithAckTimeoutRedeliveryBackoff(b backoff.RedeliveryBackoff) Option {
	return func(s *settings) error {
		s.AckTimeoutBackoff = b
		return checkPolicy("WithAckTimeoutRedeliveryBackoff", b)
	}
}

// WithReconsumeBackoff (default: none; with RetryEnable in pulsar.ConsumerOptions the levels of
// backoff.DefaultDelayLevels) also subscribes to the retry topic, and sets the delays of ReconsumeLaterNext (PIP-94):
// backoff.DelayLevels, or any policy.
//
// WithDeadLetterPolicy, or DLQ in pulsar.ConsumerOptions, sets the topics and the number of retries. Without them the
// topics have their default names, and the number of retries is not limited, as PIP-94 proposes (RetryEnable alone
// limits it to 16). The option needs a client: that of Subscribe or WithClient. It is for Shared and Key_Shared: on
// other types the broker does not delay messages.
func WithReconsumeBackoff(b backoff.RedeliveryBackoff) Option {
	return func(s *settings) error {
		s.Reconsume = b
		return checkPolicy("WithReconsumeBackoff", b)
	}
}

// WithNackRetryTopic (default: none) moves a nacked message to the retry topic if its delay is atLeast or longer, so
// that the delay survives a restart of the process, if the subscription is durable. Messages with shorter delays wait
// in the Consumer, which is more precise. atLeast must be more than 0. The option needs a retry topic: RetryEnable or
// WithReconsumeBackoff.
//
// It applies to Nack, NackWithDelay and Snooze, but not to NackID and ack timeouts, where the Consumer has no message
// to publish. If the retry cannot be published, the message waits in the Consumer. Once it is published, the message
// can no longer be acknowledged: an Ack after the Nack returns nil, and the retry still comes. The retry keeps the
// redelivery count: with MaxDeliveries 5 the fifth failed delivery makes it a dead letter, whether nacks were moved or
// not. MaxReconsumes does not limit moved nacks. A Worker with WithKeyOrder moves no message with a key, since the
// message would lose its order.
func WithNackRetryTopic(atLeast time.Duration) Option {
	return func(s *settings) error {
		s.NackRetryTopic = atLeast
		return checkDuration("WithNackRetryTopic", atLeast, false)
	}
}

// WithClient (default: the client of Subscribe; none with SubscribeWith and Wrap) publishes retries and dead letters
// with client. The caller closes client, after the Consumer.
func WithClient(client pulsar.Client) Option {
	return func(s *settings) error {
		if client == nil {
			return invalid("WithClient", "nil", "a pulsar.Client")
		}
		s.client = client
		return nil
	}
}

// WithReconsumer (default: none, but Subscribe makes one if RetryEnable, DLQ or WithReconsumeBackoff is set) publishes
// retries and dead letters with r. The caller closes r. With this option the Consumer does not subscribe to the retry
// topic by itself.
func WithReconsumer(r *reconsume.Reconsumer) Option {
	return func(s *settings) error {
		if r == nil {
			return invalid("WithReconsumer", "nil", "a *reconsume.Reconsumer")
		}
		s.reconsumer = r
		return nil
	}
}

// WithRedeliveryResolution (default: see below) sets how often the Consumer sends its requests for redelivery to the
// broker. A message that comes back through the broker is late by at most d plus the time that the broker takes. d is
// from 1 ms to 1 minute.
//
// The default depends on how often messages come back through the broker:
//   - if all messages wait in memory (Exclusive and Failover, or FromMemory) and there is no ack timeout: 100 ms up to
//     two partitions, and 50 ms more for each further one;
//   - otherwise 10 ms up to 20 partitions, and half a millisecond more for each further one.
//
// Each partition has a ticker with a little less than this period. An idle Consumer costs no more than its tickers. On
// Failover and Key_Shared each partition has a second ticker, for acknowledgements: 10 ms up to 20 partitions, unless
// AckGroupingOptions is set.
func WithRedeliveryResolution(d time.Duration) Option {
	return func(s *settings) error {
		if d < minResolution || d > maxResolution {
			return invalid("WithRedeliveryResolution", d, fmt.Sprintf("%v to %v", minResolution, maxResolution))
		}
		s.resolution = d
		return nil
	}
}

// Source says where a nacked message waits until it is due; "" means FromAuto. Files for package config use the same
// text.
type Source string

const (
	// FromAuto keeps messages in memory. On Shared and Key_Shared another consumer may succeed with a message that
	// fails here, so the Consumer returns it to the broker when it is due
	//   - if at least eighteen of the last twenty messages failed here,
	//   - before the last delivery by MaxDeliveries,
	//   - after an ack timeout,
	//   - if it was not received within 30 seconds after it was due (Key_Shared: five),
	//   - on Key_Shared, if its first failure was more than five seconds ago: its key cannot move to a joining consumer
	//     while it waits here.
	//
	// A message of a batch goes back only if the application has no message of the batch. Unless the broker keeps
	// batch-index acknowledgements, no message of the batch may be settled either. With a subscription that is not
	// durable no message goes back: the broker forgets such a subscription when its connection ends.
	FromAuto Source = "auto"
	// FromMemory keeps every message in memory: it comes back to this Consumer, on time, unless the connection is lost.
	FromMemory Source = "memory"
	// FromBroker drops each nacked message, and asks the broker for it when it is due. A copy that the broker sends
	// before, together with a message that is due, is kept in memory.
	FromBroker Source = "broker"
)

// WithRedeliveryFrom (default: FromAuto) sets where a message waits after a nack or an ack timeout. A message from
// memory is late only by the scheduling of goroutines. A message from the broker is late by up to the resolution and a
// round trip. On Shared and Key_Shared it also queues behind prefetched messages; on Exclusive and Failover the broker
// sends all unacknowledged messages again. Redelivered and new messages alternate if both are available.
//
// Messages that do not fit the memory limit always come back through the broker. After a lost connection, or when
// another consumer becomes active on a Failover partition, messages in memory may belong to another consumer. The
// Consumer delivers such a message only if the broker sends it again. If an operator clears or skips the backlog,
// messages in memory are still delivered, except those that FromAuto has returned to the broker.
func WithRedeliveryFrom(source Source) Option {
	source = cmp.Or(source, FromAuto)
	return func(s *settings) error {
		if source != FromAuto && source != FromMemory && source != FromBroker {
			return invalid("WithRedeliveryFrom", source, "FromAuto, FromMemory or FromBroker")
		}
		s.Source = source
		return nil
	}
}

// WithMemoryLimit (default: 16 MiB) limits the bytes of messages that the Consumer keeps in memory, over all
// partitions: messages that wait until they are due, and messages that the application has. A message takes the bytes
// of its payload, its keys and its properties plus 512, and 48 for each property, rounded up by an eighth at most. The
// buffer of a batch counts once and as a whole, since any message of the batch keeps it alive. A message that does not
// fit is dropped, and the Consumer asks the broker for it when it is due. With Chan one more message may be kept: one
// that was offered on the channel and withdrawn again, for instance by Pause.
func WithMemoryLimit(bytes int64) Option {
	return func(s *settings) error {
		if bytes < 0 {
			return invalid("WithMemoryLimit", bytes, "0 or more")
		}
		s.MemoryLimit = bytes
		return nil
	}
}

// WithObserver (default: none) calls the functions of o when something happens. It may be given more than once: all
// observers are called, in the given order.
func WithObserver(o Observer) Option {
	return func(s *settings) error {
		s.observers = append(s.observers, o)
		return nil
	}
}

// WithLogger (default: slog.Default()) sets where the Consumer logs failures that it cannot return as errors, dead
// letters and, at Debug, all decisions. Payloads and properties of messages are never logged.
func WithLogger(logger *slog.Logger) Option {
	return func(s *settings) error {
		if logger == nil {
			return invalid("WithLogger", "nil", "a *slog.Logger")
		}
		s.logger = logger
		return nil
	}
}

// WithoutChecks (default: Subscribe and SubscribeWith log the findings) skips the checks of package doctor that need
// only options. Without this option each finding is logged once, in one line at Warn, with a link to its explanation.
func WithoutChecks() Option {
	return func(s *settings) error {
		s.unchecked = true
		return nil
	}
}

// WithoutBatchIndexAcks (default: Subscribe and SubscribeWith switch on EnableBatchIndexAcknowledgment for Shared and
// Key_Shared) leaves EnableBatchIndexAcknowledgment of pulsar.ConsumerOptions as it is. If that field is true,
// pulsar-client-go acknowledges single messages of a batch at the broker. Otherwise it acknowledges only whole batches:
// after a restart, a batch with one waiting message comes again as a whole. The field costs 0.3 µs of CPU a message.
// Brokers without acknowledgmentAtBatchIndexLevelEnabled=true in broker.conf ignore such acknowledgements.
//
// Subscribe and SubscribeWith do not switch it on where each acknowledgement is a command of its own (AckWithResponse,
// or a MaxSize of 1 in AckGroupingOptions): a batch of 1,000 would be 1,000 commands instead of one. They also leave it
// off with a client that has EnableTransaction (see AckWithTxn), with EnableZeroQueueConsumer, and on Exclusive and
// Failover, where it would change how a cumulative acknowledgement inside a batch works. On these two types, set
// EnableBatchIndexAcknowledgment if the application acknowledges message by message. Wrap cannot change it.
func WithoutBatchIndexAcks() Option {
	return func(s *settings) error {
		s.withoutIndexAcks = true
		return nil
	}
}
