package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/durations"
)

// Batch limits how many messages a BatchHandler gets in one call. The handler is called as soon as one limit is
// reached. Zero fields mean 100 messages, 1 MiB and 100 ms.
type Batch struct {
	MaxMessages int           // in one call of the handler
	MaxBytes    int64         // of payloads; the message that reaches the limit is the last of its batch
	MaxWait     time.Duration // after the first message; prefetched messages are taken even when it is over
}

// BatchHandler handles several messages in one call. Its error settles them: nil acknowledges all, a BatchError settles
// each message by its own error, and any other error fails all. The documentation of Handler applies here too.
//
// A batch that fails as a whole is halved instead of nacked if one of its messages failed before, has its last
// delivery, or is past WithMaxAge. The handler is called again at once with each half, until the failing messages are
// alone. RetryAfter and Permanent do not halve a batch.
type BatchHandler func(ctx context.Context, msgs []pulsar.Message) error

// BatchError maps the index of each failed message to its error; the others succeeded. An error means the same as from
// a Handler: Permanent, RetryAfter, or any other. An index that is out of range fails the whole batch.
//
// A BatchError may be wrapped. Permanent or RetryAfter around it applies to each of its errors. Several BatchErrors may
// be joined with errors.Join. A BatchError that is joined with any other error fails the whole batch, and so does a
// panic with a BatchError.
type BatchError map[int]error

func (e BatchError) Error() string {
	failed := slices.DeleteFunc(slices.Sorted(maps.Keys(e)), func(i int) bool { return e[i] == nil })
	if len(failed) == 0 {
		return "none of the batch failed"
	}
	return fmt.Sprintf("%d of the batch failed, first message %d: %v", len(failed), failed[0], e[failed[0]])
}

// NewBatch is New for a handler of many messages. WithConcurrency counts batches. WithMiddleware is not allowed, since
// it wraps a Handler.
func NewBatch(consumer *redelivery.Consumer, handler BatchHandler, batch Batch, options ...Option) (*Worker, error) {
	if handler == nil {
		return nil, invalid("NewBatch's handler", "nil", "a BatchHandler")
	}
	switch {
	case batch.MaxMessages < 0:
		return nil, invalid("Batch.MaxMessages", batch.MaxMessages, "0 or more")
	case batch.MaxBytes < 0:
		return nil, invalid("Batch.MaxBytes", batch.MaxBytes, "0 or more")
	case durations.Wanted(batch.MaxWait, true) != "":
		return nil, invalid("Batch.MaxWait", batch.MaxWait, durations.Wanted(batch.MaxWait, true))
	}
	w, err := newWorker(consumer, options)
	if err != nil {
		return nil, err
	}
	if len(w.middleware) > 0 {
		return nil, fmt.Errorf("%w: worker: WithMiddleware is given to NewBatch, want it with New",
			redelivery.ErrInvalidOption)
	}
	w.batch = Batch{cmp.Or(batch.MaxMessages, 100), cmp.Or(batch.MaxBytes, 1<<20),
		cmp.Or(batch.MaxWait, 100*time.Millisecond)}
	w.handle = func(ctx context.Context, tasks []task, outcomes []outcome) bool {
		msgs := make([]pulsar.Message, len(tasks))
		for i := range tasks {
			msgs[i] = tasks[i].counted()
		}
		return w.spread(w.handleBatch(ctx, handler, msgs), outcomes)
	}
	return w, nil
}

func (w *Worker) handleBatch(ctx context.Context, handler BatchHandler, msgs []pulsar.Message) (err error) {
	first := msgs[0] // the handler may clear the slice
	defer func() {
		if v := recover(); v != nil {
			err = w.panicked(v, append(about(first), slog.Int("batch", len(msgs)))...)
		}
	}()
	return handler(ctx, msgs)
}

// spread sets the error of each message by the result of a BatchHandler, and reports whether the batch failed as a
// whole.
func (w *Worker) spread(err error, outcomes []outcome) bool {
	each, whole := w.split(err)
	for _, i := range slices.Sorted(maps.Keys(each)) {
		if i < 0 || i >= len(outcomes) {
			// only err's text: if the new error wrapped err, split would find the BatchError again
			whole = fmt.Errorf("worker: BatchError has index %d, want 0 to %d: %s", i, len(outcomes)-1, fmt.Sprint(err))
			break
		}
	}
	for i := range outcomes {
		outcomes[i].err = whole
		if whole == nil {
			outcomes[i].err = each[i]
		}
	}
	return whole != nil
}

// split returns the BatchError in err, or err as the error of the whole batch.
func (w *Worker) split(err error) (each BatchError, whole error) {
	defer func() {
		if v := recover(); v != nil {
			whole = w.broken(err, v)
		}
	}()
	each, some := AsBatchError(err)
	if !some {
		whole = err
	}
	return each, whole
}

// AsBatchError returns the BatchError that err is or wraps, as a Worker of NewBatch reads it. BatchErrors that are
// joined become one. Permanent or RetryAfter around a BatchError is put around each of its errors. AsBatchError reports
// false if err fails the whole batch.
func AsBatchError(err error) (each BatchError, some bool) {
	// errors.As would also find a BatchError that is joined with another error, which may be about any message
	switch e := err.(type) { //nolint:errorlint // see above
	case BatchError:
		return e, true
	case *permanentError:
		each, some = AsBatchError(e.error)
		return each.marked(Permanent), some
	case *retryAfterError:
		each, some = AsBatchError(e.error)
		return each.marked(func(err error) error { return RetryAfter(e.delay, err) }), some
	case *PanicError:
		return nil, false
	case interface{ Unwrap() error }:
		return AsBatchError(e.Unwrap())
	case interface{ Unwrap() []error }:
		each = BatchError{}
		for _, part := range e.Unwrap() {
			of, ok := AsBatchError(part)
			some = ok
			if !some {
				return nil, false
			}
			for i, err := range of {
				each[i] = errors.Join(each[i], err)
			}
		}
		return each, some
	}
	return nil, false
}

func (e BatchError) marked(mark func(error) error) BatchError {
	marked := maps.Clone(e)
	for i, err := range e {
		if err != nil {
			marked[i] = mark(err)
		}
	}
	return marked
}
