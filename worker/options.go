package worker

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/durations"
	"github.com/pulsar-redelivery/redelivery/internal/policies"
)

// Option configures a Worker. New and NewBatch check it: an error satisfies errors.Is with redelivery.ErrInvalidOption.
// A duration below a millisecond is such an error, since its unit was forgotten, as in WithTimeout(30). If an option is
// given twice, the last one counts; but WithMiddleware and WithObserver add to the earlier ones.
type Option func(*settings) error

func invalid(option string, value any, want string) error {
	return fmt.Errorf("%w: worker: %s is %v, want %s", redelivery.ErrInvalidOption, option, value, want)
}

// WithConcurrency (default: runtime.GOMAXPROCS(0)) sets how many messages are handled at the same time. The Worker
// takes no more from the Consumer: the others stay prefetched, and their ack timeouts do not run yet. n must be 1 to
// 1,000,000: the Worker starts n goroutines.
func WithConcurrency(n int) Option {
	return func(s *settings) error {
		if n < 1 || n > 1_000_000 {
			return invalid("WithConcurrency", n, "1 to 1,000,000")
		}
		s.concurrency = n
		return nil
	}
}

// WithTimeout (default: none) ends the context of a handler after d, and renews the message's ack timeout until then,
// so d may be longer than the ack timeout. Without WithTimeout the ack timeout is the limit: a message whose handler
// takes longer is delivered again. d must be more than 0.
//
// A handler that does not return within five seconds after its context ended is stuck: it is logged, and counted in
// Stats. It counts toward WithConcurrency until WithStuckLimit.
func WithTimeout(d time.Duration) Option {
	return func(s *settings) error {
		if want := durations.Wanted(d, false); want != "" {
			return invalid("WithTimeout", d, want)
		}
		s.timeout = d
		return nil
	}
}

// WithDrainTimeout (default: 30s) sets how long handlers may go on after the context of Run is done. Then the handlers'
// contexts end; 0 ends them at once. Run returns five seconds later at the latest. Closing the Consumer may take
// another second, or up to OperationTimeout of pulsar.ClientOptions if the broker does not answer. In Kubernetes set d
// to terminationGracePeriodSeconds minus six seconds: 24s with its default.
func WithDrainTimeout(d time.Duration) Option {
	return func(s *settings) error {
		if want := durations.Wanted(d, true); want != "" {
			return invalid("WithDrainTimeout", d, want)
		}
		s.drainTimeout = d
		return nil
	}
}

// WithStuckLimit (default: 30s) sets how long a handler that does not return keeps its place: after d another message
// takes the place. With WithTimeout, d begins when the handler's context ends; without it, when the message comes again
// after its ack timeout. Until d is over, the message is not handled a second time: the result of the handler settles
// it. After d each delivery of the message is nacked, so with WithAckTimeout it becomes a dead letter in the end.
// Without it, the broker sends the message again only after the Consumer is closed or loses its connection. With
// WithKeyOrder the message's key waits for the handler.
//
// Up to WithConcurrency handlers may lose their places. If one more handler loses its place, Run ends with ErrStuck:
// only a restart of the process frees the messages that these handlers hold. d must be at least 5s.
func WithStuckLimit(d time.Duration) Option {
	return func(s *settings) error {
		if d < patience {
			return invalid("WithStuckLimit", d, "5s or more")
		}
		s.stuckLimit = d
		return nil
	}
}

// WithCancelLost (default: none) ends the context of a handler with the cause ErrLost when its message may now belong
// to another consumer (see redelivery.Observer.Lost). The context of a call with a batch ends when all messages of the
// batch may belong to another consumer. Without the option the handler goes on, and the message may be handled twice.
// An error that the handler then returns counts like any other.
func WithCancelLost() Option {
	return func(s *settings) error {
		s.cancelLost = true
		return nil
	}
}

// WithFinishBatches (default: true) lets a drain finish a producer's batch if some of its messages are handled: the
// Worker handles the prefetched rest of these batches, and no other messages, within the drain timeout. By Pulsar's
// default a broker keeps no batch-index acknowledgements. After a restart such a broker sends a partly acknowledged
// batch again as a whole, handled messages included. If the Consumer knows that the broker keeps batch-index
// acknowledgements (see redelivery.IndexAcks), the Worker finishes no batches. Nor does it finish batches during Pause,
// in an outage, or when handlers have been so slow that the drain timeout would not suffice. Stats.Unfinished of the
// Consumer, and "unfinished" in the last line of the log, say how many handled messages may come again. If there are
// any, that line is a warning.
func WithFinishBatches(finish bool) Option {
	return func(s *settings) error {
		s.finishBatches = finish
		return nil
	}
}

// WithMaxAge (default: none) limits the age of retries: a message that fails becomes a dead letter if it was published
// more than d ago. Every message is handled at least once, however old it is. A retry from the retry topic is as old as
// the message that was published first. Without a dead letter topic the message is nacked like any other. d must be
// more than 0.
func WithMaxAge(d time.Duration) Option {
	return func(s *settings) error {
		if want := durations.Wanted(d, false); want != "" {
			return invalid("WithMaxAge", d, want)
		}
		s.maxAge = d
		return nil
	}
}

// WithKeyOrder (default: none) handles the messages of each key one after the other, even if one fails. The Worker
// itself tries a failed message again, after the delay of the Consumer's nack policy or of RetryAfter. Later messages
// of its key wait, and other keys go on. The Worker does not nack the failed message, so no other message of its key
// overtakes it. The Worker renews the ack timeouts of all waiting messages. When the failed message becomes a dead
// letter, after a permanent error or its last delivery, its key goes on. If the dead letter cannot be published, the
// message is tried again. Messages that wait when a drain begins are left to the broker.
//
// The waiting messages count toward the Consumer's memory limit (redelivery.WithMemoryLimit), together with those that
// wait for redelivery. At the limit the Worker takes another message only when a waiting one is done. It logs this, and
// Stats.Full shows it. WithConcurrency messages may wait in any case. For three seconds after it dropped a lost message
// (see below), the Worker takes messages beyond the limit, since the dropped message may come again among them.
//
// redelivery.WithNackRetryTopic has no effect on messages with a key, since they would lose their order on the retry
// topic. So the delays of these messages do not survive a restart.
//
// The key of a message is its OrderingKey or, if that is empty, its Key. The same key on another topic is another key;
// the partitions of a topic count as one topic. Messages without a key are handled as if WithKeyOrder were not set. On
// Key_Shared, Failover and Exclusive the order holds across all consumers of a subscription, as long as no handler
// takes longer than the ack timeout. On Shared it holds among the messages that this Worker gets.
//
// A waiting message may become another consumer's: when the connection is lost, or when another consumer becomes active
// on a Failover partition (redelivery.Observer.Lost). Before the Worker calls the handler, it checks whether the
// message still belongs to its Consumer. If not, it drops the message and counts it in Stats.Lost. A handler that is
// already running goes on, and the other consumer gets its message too.
func WithKeyOrder() Option {
	return func(s *settings) error {
		s.keyOrder = true
		return nil
	}
}

// WithPauseOnFailure (default: none) pauses during an outage, when something that handlers need is down. An outage
// begins when ratio × window messages have failed in a row (with 20 and 0.5, ten) and at least window messages have
// been handled. For each message only its first failure counts; a batch that fails as a whole is one failure. The
// Worker then tries one message at a time, after a pause of pause.Next(0), Next(1) and so on. The outage ends when any
// message succeeds.
//
// The Worker prefers a message that has not failed yet. Its success shows that there is no outage, and that some
// messages always fail. Messages that always fail come in bunches, so the Worker looks further ahead each time: it
// reads 1, 4, 16, 64, 256 and then 1,000 messages, and tries the last of them. If all messages have failed before, it
// tries these in turn. If a handler takes more than 30 seconds, or is stuck (WithTimeout), another message is tried
// beside it.
//
// On Shared and Key_Shared, before a pause of a second or longer, the Worker returns all messages to the broker, so
// that other consumers get them. This does not count as a redelivery. It returns no messages if some wait for their
// keys, or if the Consumer cannot give back (redelivery.Consumer.GiveBack). In these cases, on other subscription types
// and before shorter pauses, the Worker keeps up to 1,000 messages, as far as redelivery.WithMemoryLimit has room, and
// renews their ack timeouts. A drain leaves these messages to the broker.
//
// If some messages fail and others succeed, there is no outage: the Worker nacks the failed ones, which does not delay
// messages that can succeed. A few failures in a row may still be chance. So each outage multiplies the number of
// failures that the next one needs by four. This factor ends when factor × window messages have succeeded in a row.
//
// The first two failures of a message that is tried in an outage do not count as attempts. From the third on, each
// failure counts: the message is nacked or becomes a dead letter, so messages that always fail do not block the Worker.
// A long outage thus costs one attempt of one message for each pause. After a RetryAfter longer than the pause, the
// message is nacked with that delay, which counts as an attempt, and other messages are tried.
//
// Permanent errors do not count as failures here, and still settle their messages. window must be at least 1, ratio
// more than 0 and at most 1.
func WithPauseOnFailure(window int, ratio float64, pause backoff.RedeliveryBackoff) Option {
	return func(s *settings) error {
		switch err := policies.Validate(pause); {
		case window < 1:
			return invalid("WithPauseOnFailure's window", window, "1 or more")
		case !(ratio > 0 && ratio <= 1):
			return invalid("WithPauseOnFailure's ratio", ratio, "more than 0, and at most 1")
		case err != nil:
			return fmt.Errorf("%w: worker: WithPauseOnFailure's pause: %w", redelivery.ErrInvalidOption, err)
		}
		s.window, s.ratio, s.pause = window, ratio, pause
		return nil
	}
}

// WithMiddleware (default: none) puts middleware around the handler; the first is the outermost. Middleware gets a
// panic of the handler as a *PanicError. A panic of a middleware is handled in the same way.
func WithMiddleware(middleware ...Middleware) Option {
	return func(s *settings) error {
		for i, m := range middleware {
			if m == nil {
				return invalid(fmt.Sprintf("WithMiddleware's middleware %d", i+1), "nil", "a Middleware")
			}
		}
		s.middleware = append(s.middleware, middleware...)
		return nil
	}
}

// WithClassifier (default: none) passes each error that a handler returns to classify, after all middleware. The error
// that classify returns counts instead: Permanent or RetryAfter of the error, Snooze, the error itself, or nil for
// success. Use it to classify the errors of a database or an HTTP client in one place. Many goroutines call classify at
// the same time.
func WithClassifier(classify func(error) error) Option {
	return func(s *settings) error {
		if classify == nil {
			return invalid("WithClassifier", "nil", "a func(error) error")
		}
		s.classify = classify
		return nil
	}
}

// WithPolicy (default: the Consumer's nack policy for all) chooses a policy for each failed message, by the message and
// its error. With WithClassifier, policyFor gets the classifier's error. The policy gets the message's redelivery
// count, and its delay replaces the delay of the Consumer's policy. If policyFor returns nil, the Consumer's policy
// applies. RetryAfter, Permanent, Snooze and an outage (WithPauseOnFailure) take precedence. MaxDeliveries applies as
// always. Many goroutines call policyFor at the same time.
func WithPolicy(policyFor func(msg pulsar.Message, err error) backoff.RedeliveryBackoff) Option {
	return func(s *settings) error {
		if policyFor == nil {
			return invalid("WithPolicy", "nil", "a func(pulsar.Message, error) backoff.RedeliveryBackoff")
		}
		s.policy = policyFor
		return nil
	}
}

// WithObserver (default: none) calls the functions of o when something happens. It may be given more than once: all
// observers are called, in the given order.
func WithObserver(o Observer) Option {
	return func(s *settings) error {
		s.observers.add(o)
		return nil
	}
}

// WithLogger (default: slog.Default()) sets where the Worker logs. When messages fail, the first failure of a kind is
// logged at Warn with its error, topic, message id and attempt, and then the number of the others once a minute. Errors
// of one type whose texts differ only in numbers and ids are one kind. With redelivery.DeadLetterPolicy.OmitCause all
// errors of one type are one kind, and no text is logged. Payloads and properties are never logged.
func WithLogger(logger *slog.Logger) Option {
	return func(s *settings) error {
		if logger == nil {
			return invalid("WithLogger", "nil", "a *slog.Logger")
		}
		s.logger = logger
		return nil
	}
}
