package worker

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Handler handles one message. Its error decides how the message is settled: see the table in the documentation of the
// package. Handlers run concurrently, and must not settle messages themselves. msg.RedeliveryCount() is the Consumer's
// count: 0 at the first delivery. With WithKeyOrder it also includes the Worker's own tries since then.
// redelivery.Consumer.RedeliveryCount and redelivery.Observer do not include these.
//
// ctx has the values of Run's context; Subscription returns the subscription from it. ctx ends after WithTimeout, or
// when a drain takes longer than WithDrainTimeout; context.Cause is then ErrTimeout or ErrDrainTimeout.
type Handler func(ctx context.Context, msg pulsar.Message) error

// Middleware wraps a handler: it can act before next, after it, or in its place.
type Middleware func(next Handler) Handler

// subscription is the key of a context's subscription.
type subscription struct{}

// Subscription returns the subscription of the Worker that called a handler with ctx, or "" for any other ctx.
func Subscription(ctx context.Context) string {
	s, _ := ctx.Value(subscription{}).(string)
	return s
}

// Logging returns a middleware that logs each message at Debug with its id, its redelivery count, how long its handler
// took, and its error if it failed. A nil logger means slog.Default(). The text of the error is logged even with
// DeadLetterPolicy.OmitCause. The Worker itself logs failures, with or without this middleware: see WithLogger.
func Logging(logger *slog.Logger) Middleware {
	if logger == nil {
		logger = slog.Default()
	}
	return func(next Handler) Handler {
		return func(ctx context.Context, msg pulsar.Message) error {
			began := time.Now()
			err := next(ctx, msg)
			if !logger.Enabled(ctx, slog.LevelDebug) {
				return err
			}
			took := slog.Duration("duration", time.Since(began))
			if err != nil {
				logger.LogAttrs(ctx, slog.LevelDebug, "worker: message failed",
					append(about(msg), took, slog.Any("error", err))...)
			} else {
				logger.LogAttrs(ctx, slog.LevelDebug, "worker: message handled", append(about(msg), took)...)
			}
			return err
		}
	}
}

// about returns attributes that name a message, for the log.
func about(msg pulsar.Message) []slog.Attr {
	return []slog.Attr{slog.String("topic", msg.Topic()), slog.String("message", msg.ID().String()),
		slog.Uint64("redelivery", uint64(msg.RedeliveryCount()))}
}

// chain puts the middleware around handler, and recovers the panics of both.
func (w *Worker) chain(handler Handler) (Handler, error) {
	chained := w.recovered(handler)
	for i, v := range slices.Backward(w.middleware) {
		chained = v(chained)
		if chained == nil {
			return nil, invalid(fmt.Sprintf("the handler of WithMiddleware's middleware %d", i+1), "nil", "a Handler")
		}
	}
	if len(w.middleware) > 0 {
		chained = w.recovered(chained)
	}
	return chained, nil
}

func (w *Worker) recovered(next Handler) Handler {
	return func(ctx context.Context, msg pulsar.Message) (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = w.panicked(v, about(msg)...)
			}
		}()
		return next(ctx, msg)
	}
}

// broken returns an error that replaces err, whose methods panic, as those of a nil pointer do. The new error wraps
// nothing that might panic again.
func (w *Worker) broken(err error, value any) error {
	return fmt.Errorf("an error of type %T: %v", err, w.panicked(value)) //nolint:errorlint // see above
}

// panicked logs a panic and counts it.
func (w *Worker) panicked(value any, attrs ...slog.Attr) error {
	w.counts.panics.Add(1)
	return w.logPanic(value, attrs...)
}

// logPanic logs a panic with its stack if it is the first of its kind in a minute. It returns a *PanicError.
func (w *Worker) logPanic(value any, attrs ...slog.Attr) error {
	err := &PanicError{value, stackOfPanic(debug.Stack())}
	kind, attr := w.describe(err)
	first := w.repeats.first("panic: "+kind, func(more int) {
		w.logger.Error("worker: more panics like that", append(w.who(), "panics", more, attr)...)
	})
	if first {
		w.logger.LogAttrs(context.Background(), slog.LevelError, "worker: panic",
			append(attrs, attr, slog.String("stack", string(err.Stack)))...)
	}
	return err
}
