package worker

import (
	"cmp"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
)

// Option configures a Worker. It is checked when New applies it: an error satisfies errors.Is with
// redelivery.ErrInvalidOption. Of one that is given twice the last counts, but for WithMiddleware, which adds.
type Option func(*settings) error

type settings struct {
	concurrency  int
	timeout      time.Duration // 0 for none
	drainTimeout time.Duration
	maxAge       time.Duration // 0 for none
	keyOrder     bool
	holdLimit    int64 // of keyOrder
	window       int   // of failures before a pause; 0 for none
	ratio        float64
	pause        backoff.RedeliveryBackoff
	middleware   []Middleware
	classify     func(error) error // nil for none
	logger       *slog.Logger
}

const defaultDrainTimeout = 30 * time.Second

func newSettings(options []Option) (settings, error) {
	s := settings{concurrency: runtime.GOMAXPROCS(0), drainTimeout: defaultDrainTimeout, logger: slog.Default()}
	for i, option := range options {
		if option == nil {
			return s, invalid(fmt.Sprintf("option %d", i+1), "nil", "an Option")
		}
		if err := option(&s); err != nil {
			return s, err
		}
	}
	if s.holdLimit != 0 && !s.keyOrder {
		return s, fmt.Errorf("%w: worker: WithHoldLimit is given, want WithKeyOrder too", redelivery.ErrInvalidOption)
	}
	s.holdLimit = cmp.Or(s.holdLimit, redelivery.DefaultHoldLimit)
	return s, nil
}

func invalid(option string, value any, want string) error {
	return fmt.Errorf("%w: worker: %s is %v, want %s", redelivery.ErrInvalidOption, option, value, want)
}

// WithConcurrency (default: runtime.GOMAXPROCS(0)) sets how many messages are handled at the same time. No more are taken from
// the Consumer: the others stay prefetched, and their ack timeouts do not run yet. It must be at least 1.
func WithConcurrency(n int) Option {
	return func(s *settings) error {
		if n < 1 {
			return invalid("WithConcurrency", n, "1 or more")
		}
		s.concurrency = n
		return nil
	}
}

// WithTimeout (default: none) ends the context of a handler after d, and renews the message's ack timeout until then, so that d
// may be longer than it. Without WithTimeout the ack timeout is the limit: a message whose handler takes longer is delivered
// again. It must be more than 0.
//
// A handler that does not return within five seconds of the end of its context keeps its place among the concurrent ones. It
// is logged, and counted in State.
func WithTimeout(d time.Duration) Option {
	return func(s *settings) error {
		if d <= 0 {
			return invalid("WithTimeout", d, "more than 0")
		}
		s.timeout = d
		return nil
	}
}

// WithDrainTimeout (default: 30s) sets how long handlers may go on after the context of Run is done. Then their contexts end;
// 0 ends them at once.
func WithDrainTimeout(d time.Duration) Option {
	return func(s *settings) error {
		if d < 0 {
			return invalid("WithDrainTimeout", d, "0 or more")
		}
		s.drainTimeout = d
		return nil
	}
}

// WithMaxAge (default: none) makes a message that fails a dead letter, not a retry, if it was published more than d ago. One that
// was not handled yet is handled first, however old it is. A copy from the retry topic is as old as the copy. Without a dead letter
// topic it is nacked as ever. It must be more than 0.
func WithMaxAge(d time.Duration) Option {
	return func(s *settings) error {
		if d <= 0 {
			return invalid("WithMaxAge", d, "more than 0")
		}
		s.maxAge = d
		return nil
	}
}

// WithKeyOrder (default: none) handles the messages of each key one after the other, also if one fails: it is tried again here, by
// the Consumer's nack policy or the delay of RetryAfter, while those of its key that follow wait, and other keys go on. It is not
// nacked, so that nothing overtakes it, and its ack timeout is renewed while it waits, as are theirs. A dead letter, for a permanent
// error or the last delivery, lets its key go on. If none can be published, the message is tried again, and again. What waits when a
// drain begins is left.
//
// The key is the ordering key, or else the key; messages without one are handled as if there were no WithKeyOrder. Key_Shared,
// Failover and Exclusive keep the order over all consumers of a subscription, as long as no handler takes longer than the ack
// timeout allows; on Shared it holds among the messages that this Worker gets.
func WithKeyOrder() Option {
	return func(s *settings) error {
		s.keyOrder = true
		return nil
	}
}

// WithHoldLimit (default: redelivery.DefaultHoldLimit, 16 MiB) bounds the messages that wait for their keys, each by its payload and
// 512 bytes. Once they are more, no message is taken until some keys go on, which is logged; it is in State, too. It must be more
// than 0, and needs WithKeyOrder.
func WithHoldLimit(bytes int64) Option {
	return func(s *settings) error {
		if bytes <= 0 {
			return invalid("WithHoldLimit", bytes, "more than 0")
		}
		s.holdLimit = bytes
		return nil
	}
}

// WithPauseOnFailure (default: none) pauses when what handlers need is down: once ratio of the last window messages failed, each
// slot keeps its message, and one of them at a time is tried, after a pause of pause.Next(0), Next(1) and so on, or of what RetryAfter
// asked for if that is longer. When one succeeds all go on. Meanwhile the ack timeouts of the messages are renewed, and no failure is
// a nack: an outage makes no dead letters, and the load on what is down is one message for each pause. A drain leaves the messages.
//
// Permanent errors say nothing about an outage: they do not count, and settle their messages as ever. window must be at least 1,
// ratio more than 0 and at most 1.
func WithPauseOnFailure(window int, ratio float64, pause backoff.RedeliveryBackoff) Option {
	return func(s *settings) error {
		switch err := backoff.Validate(pause); {
		case window < 1:
			return invalid("WithPauseOnFailure's window", window, "1 or more")
		case !(ratio > 0 && ratio <= 1):
			return invalid("WithPauseOnFailure's ratio", ratio, "more than 0, and at most 1")
		case err != nil:
			return invalid("WithPauseOnFailure's pause", err, "a policy")
		}
		s.window, s.ratio, s.pause = window, ratio, pause
		return nil
	}
}

// WithMiddleware (default: none) puts middleware around the handler; the first is the outermost. A panic of the handler reaches
// them as a *PanicError, and a panic of theirs is handled in the same way.
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

// WithClassifier (default: none) has classify look at each error that a handler returns, after all middleware, and return what
// counts in its place: Permanent or RetryAfter of it, the error as it is, or nil for success. It is the one place for errors of a
// database or of an HTTP client. If classify panics the error counts as it is.
func WithClassifier(classify func(error) error) Option {
	return func(s *settings) error {
		if classify == nil {
			return invalid("WithClassifier", "nil", "a func(error) error")
		}
		s.classify = classify
		return nil
	}
}

// WithLogger (default: slog.Default()) sets where the Worker logs. Payloads and properties are never logged.
func WithLogger(logger *slog.Logger) Option {
	return func(s *settings) error {
		if logger == nil {
			return invalid("WithLogger", "nil", "a *slog.Logger")
		}
		s.logger = logger
		return nil
	}
}
