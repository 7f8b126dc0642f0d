package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/worker"
)

// textless is an error whose method Error panics for a nil pointer.
type textless struct{ text string }

func (e *textless) Error() string { return e.text }

// A handler may return a nil pointer as an error, whose methods panic.
func TestErrorWhoseMethodsPanicIsAFailure(t *testing.T) {
	var path *fs.PathError
	const panicked = ": panic: runtime error: invalid memory address or nil pointer dereference"
	for name, c := range map[string]struct {
		err    error
		panics bool // the handler panics with err instead of returning it
		option worker.Option
		dead   string
		stats  worker.Stats
	}{
		"returned":             {err: path, dead: "an error of type *fs.PathError" + panicked, stats: worker.Stats{Failed: 2, Panics: 2}},
		"hostile":              {err: hostile{errTest}, dead: "an error of type worker_test.hostile: panic: no luck", stats: worker.Stats{Failed: 2, Panics: 2}},
		"wrapped":              {err: fmt.Errorf("a: %w", path), dead: "an error of type *fmt.wrapError" + panicked, stats: worker.Stats{Failed: 2, Panics: 2}},
		"a panic":              {err: path, panics: true, dead: "an error of type *worker.PanicError" + panicked, stats: worker.Stats{Failed: 2, Panics: 4}},
		"permanent":            {err: worker.Permanent(path), dead: "an error of type *fs.PathError" + panicked, stats: worker.Stats{Permanent: 1, Panics: 1}},
		"without a text":       {err: (*textless)(nil), dead: "an error of type *worker_test.textless" + panicked, stats: worker.Stats{Failed: 2, Panics: 2}},
		"permanent, no text":   {err: worker.Permanent((*textless)(nil)), dead: "an error of type *worker_test.textless" + panicked, stats: worker.Stats{Permanent: 1, Panics: 1}},
		"retry after, no text": {err: worker.RetryAfter(0, (*textless)(nil)), dead: "an error of type *worker_test.textless" + panicked, stats: worker.Stats{Failed: 2, Panics: 2}},
		"of the classifier": {err: errTest, option: worker.WithClassifier(func(error) error { return path }),
			dead: "an error of type *fs.PathError" + panicked, stats: worker.Stats{Failed: 2, Panics: 2}},
		"of a middleware": {err: errTest, option: worker.WithMiddleware(func(worker.Handler) worker.Handler {
			return func(context.Context, pulsar.Message) error { return path }
		}), dead: "an error of type *fs.PathError" + panicked, stats: worker.Stats{Failed: 2, Panics: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, withDeadLetters(2), func(t *rig) {
				t.publish("tea")
				options := []worker.Option{worker.WithObserver(worker.Observer{Handled: func(e worker.Handled) { _ = e.Err.Error() }})}
				if c.option != nil {
					options = append(options, c.option)
				}
				w, stop := t.start(func(context.Context, pulsar.Message) error {
					if c.panics {
						panic(c.err)
					}
					return c.err
				}, options...)
				t.sleep(time.Hour)
				require.NoError(t, stop())
				require.Equal(t, []string{"tea: " + c.dead}, t.letters())
				require.Equal(t, c.stats, w.Stats())
				require.Empty(t, t.broker.Unacked())
			})
		})
	}
}

func TestErrorWhoseMethodsPanicIsAFailureInABatch(t *testing.T) {
	var path *fs.PathError
	for name, c := range map[string]struct {
		err   error
		stats worker.Stats
	}{
		"returned": {path, worker.Stats{Failed: 2, Panics: 1, Succeeded: 2}},
		"hostile":  {hostile{errTest}, worker.Stats{Failed: 2, Panics: 1, Succeeded: 2}},
		"of one":   {worker.BatchError{1: path}, worker.Stats{Failed: 1, Panics: 1, Succeeded: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, orders, func(t *rig) {
				t.publish("a")
				t.publish("b")
				calls := newCalls()
				w, stop := t.startBatch(worker.Batch{MaxMessages: 2}, func(_ context.Context, msgs []pulsar.Message) error {
					if calls.note(msgs[0]) == 1 {
						return c.err
					}
					return nil
				})
				t.sleep(time.Hour)
				require.NoError(t, stop())
				require.Equal(t, c.stats, w.Stats())
			})
		})
	}
}

// hostile is an error whose method Unwrap panics with the error itself.
type hostile struct{ error }

func (e hostile) Unwrap() error { panic(e) }

func TestIsSnoozeFindsASnoozeInsideOtherErrors(t *testing.T) {
	snooze := worker.Snooze(time.Second)
	for _, err := range []error{snooze, fmt.Errorf("not yet: %w", snooze), worker.Permanent(snooze)} {
		assert.True(t, worker.IsSnooze(err), err)
	}
	var path *fs.PathError // whose methods panic
	for _, err := range []error{nil, errors.New("failed"), worker.RetryAfter(time.Second, nil), worker.Permanent(nil), path} {
		assert.False(t, worker.IsSnooze(err))
	}
}
