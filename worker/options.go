package worker

import (
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/pulsar-redelivery/redelivery"
)

// Option configures a Worker. It is checked when New applies it: an error satisfies errors.Is with
// redelivery.ErrInvalidOption. Of one that is given twice the last counts, but for WithMiddleware, which adds.
type Option func(*settings) error

type settings struct {
	concurrency  int
	timeout      time.Duration // 0 for none
	drainTimeout time.Duration
	maxAge       time.Duration // 0 for none
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
