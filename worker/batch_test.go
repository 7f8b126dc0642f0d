package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// startBatch runs a worker of batches until stop is called.
func (r *rig) startBatch(batch worker.Batch, handler worker.BatchHandler, options ...worker.Option) (w *worker.Worker, stop func() error) {
	w, err := worker.NewBatch(r.consumer, handler, batch, append([]worker.Option{worker.WithLogger(r.logger)}, options...)...)
	require.NoError(r, err)
	return w, r.run(w)
}

func text(msgs []pulsar.Message) string {
	var payloads []string
	for _, msg := range msgs {
		payloads = append(payloads, string(msg.Payload()))
	}
	return strings.Join(payloads, " ")
}

func TestNewBatchRefusesInvalidArguments(t *testing.T) {
	handler := func(context.Context, []pulsar.Message) error { return nil }
	virtually(t, orders, func(t *rig) {
		for _, c := range []struct {
			handler worker.BatchHandler
			batch   worker.Batch
			option  worker.Option
			want    string
		}{
			{nil, worker.Batch{}, worker.WithConcurrency(1), "NewBatch's handler is nil, want a BatchHandler"},
			{handler, worker.Batch{MaxMessages: -1}, worker.WithConcurrency(1), "Batch.MaxMessages is -1, want 0 or more"},
			{handler, worker.Batch{MaxBytes: -1}, worker.WithConcurrency(1), "Batch.MaxBytes is -1, want 0 or more"},
			{handler, worker.Batch{MaxWait: 100}, worker.WithConcurrency(1), "Batch.MaxWait is 100ns, want 1ms or more"},
			{handler, worker.Batch{MaxWait: -1}, worker.WithConcurrency(1), "Batch.MaxWait is -1ns, want 0 or more"},
			{handler, worker.Batch{}, worker.WithMiddleware(worker.Logging(t.logger)), "WithMiddleware is given to NewBatch, want it with New"},
			{handler, worker.Batch{}, worker.WithConcurrency(0), "WithConcurrency is 0, want 1 to 1,000,000"},
		} {
			_, err := worker.NewBatch(t.consumer, c.handler, c.batch, c.option)
			require.ErrorIs(t, err, redelivery.ErrInvalidOption)
			require.ErrorContains(t, err, c.want)
		}
	})
}

func TestEachLimitEndsABatch(t *testing.T) {
	for name, c := range map[string]struct {
		batch worker.Batch
		want  []string
		last  time.Duration // when the last batch was handled
	}{
		"messages": {worker.Batch{MaxMessages: 2}, []string{"a bb", "ccc dddd", "e"}, 100 * time.Millisecond},
		"bytes":    {worker.Batch{MaxBytes: 5}, []string{"a bb ccc", "dddd e"}, 0},
		"wait":     {worker.Batch{MaxWait: time.Minute}, []string{"a bb ccc dddd e"}, time.Minute},
		"defaults": {worker.Batch{}, []string{"a bb ccc dddd e"}, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, orders, func(t *rig) {
				for _, payload := range []string{"a", "bb", "ccc", "dddd", "e"} {
					t.publish(payload)
				}
				var got []string
				var last time.Duration
				began := time.Now()
				w, stop := t.startBatch(c.batch, func(_ context.Context, msgs []pulsar.Message) error {
					got, last = append(got, text(msgs)), time.Since(began)
					return nil
				}, worker.WithConcurrency(1))
				t.sleep(time.Hour)
				require.NoError(t, stop())
				require.Equal(t, c.want, got)
				require.Equal(t, c.last, last)
				require.Equal(t, worker.Stats{Succeeded: 5}, w.Stats())
				require.Empty(t, t.broker.Unacked())
			}, redelivery.WithAckTimeout(3*time.Second)) // renewed while a batch is collected
		})
	}
}

// none is an error whose Unwrap returns an empty list.
type none struct{}

func (none) Error() string   { return "none" }
func (none) Unwrap() []error { return nil }

// Each row has the result of the handler's first call, with the messages "a b c", and the outcomes of these messages.
func TestBatchErrorDecidesTheOutcomeOfEachMessage(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		panic   bool
		retried []string // the later batches
		dead    []string
		stats   worker.Stats
	}{
		"nil":              {nil, false, nil, nil, worker.Stats{Succeeded: 3}},
		"an error":         {errTest, false, []string{"a b c"}, nil, worker.Stats{Failed: 3, Succeeded: 3}},
		"a permanent one":  {worker.Permanent(errTest), false, nil, []string{"a: no luck", "b: no luck", "c: no luck"}, worker.Stats{Permanent: 3}},
		"a panic":          {errTest, true, []string{"a b c"}, nil, worker.Stats{Failed: 3, Panics: 1, Succeeded: 3}},
		"of one":           {worker.BatchError{1: errTest}, false, []string{"b"}, nil, worker.Stats{Failed: 1, Succeeded: 3}},
		"wrapped":          {fmt.Errorf("sql: %w", worker.BatchError{1: errTest}), false, []string{"b"}, nil, worker.Stats{Failed: 1, Succeeded: 3}},
		"of each its own":  {worker.BatchError{0: worker.Permanent(errTest), 2: worker.RetryAfter(0, errTest)}, false, []string{"c"}, []string{"a: no luck"}, worker.Stats{Permanent: 1, Failed: 1, Succeeded: 2}},
		"of none":          {worker.BatchError{}, false, nil, nil, worker.Stats{Succeeded: 3}},
		"nil of one":       {worker.BatchError{1: nil}, false, nil, nil, worker.Stats{Succeeded: 3}},
		"joined":           {errors.Join(worker.BatchError{0: errTest}, worker.BatchError{2: errTest}), false, []string{"a c"}, nil, worker.Stats{Failed: 2, Succeeded: 3}},
		"joined, marked":   {worker.Permanent(errors.Join(worker.BatchError{0: errTest}, worker.BatchError{0: errTest, 2: errTest})), false, nil, []string{"a: no luck\nno luck", "c: no luck"}, worker.Stats{Permanent: 2, Succeeded: 1}},
		"joined, nothing":  {none{}, false, []string{"a b c"}, nil, worker.Stats{Failed: 3, Succeeded: 3}},
		"with another":     {errors.Join(worker.BatchError{1: errTest}, errors.New("rollback")), false, []string{"a b c"}, nil, worker.Stats{Failed: 3, Succeeded: 3}},
		"wrapped with two": {fmt.Errorf("%w: %w", errTest, worker.BatchError{1: errTest}), false, []string{"a b c"}, nil, worker.Stats{Failed: 3, Succeeded: 3}},
		"a panic with one": {worker.BatchError{1: errTest}, true, []string{"a b c"}, nil, worker.Stats{Failed: 3, Panics: 1, Succeeded: 3}},
		"marked permanent": {fmt.Errorf("sql: %w", worker.Permanent(worker.BatchError{0: nil, 1: errTest})), false, nil, []string{"b: no luck"}, worker.Stats{Permanent: 1, Succeeded: 2}},
		"marked twice":     {worker.RetryAfter(0, worker.BatchError{1: worker.Permanent(errTest)}), false, nil, []string{"b: no luck"}, worker.Stats{Permanent: 1, Succeeded: 2}},
		"index too large":  {worker.BatchError{1: errTest, 3: errTest}, false, []string{"a b c"}, nil, worker.Stats{Failed: 3, Succeeded: 3}},
		"index negative":   {worker.BatchError{-1: errTest}, false, []string{"a b c"}, nil, worker.Stats{Failed: 3, Succeeded: 3}},
		"classified each":  {worker.BatchError{0: errors.New("fatal"), 2: errTest}, false, []string{"c"}, []string{"a: fatal"}, worker.Stats{Permanent: 1, Failed: 1, Succeeded: 2}},
		"classified as ok": {worker.BatchError{0: errors.New("known")}, false, nil, nil, worker.Stats{Succeeded: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, withDeadLetters(3), func(t *rig) {
				t.publish("a")
				t.publish("b")
				t.publish("c")
				var got []string
				w, stop := t.startBatch(worker.Batch{MaxMessages: 3}, func(_ context.Context, msgs []pulsar.Message) error {
					got = append(got, text(msgs))
					switch {
					case len(got) > 1:
						return nil
					case c.panic:
						panic(c.err)
					}
					return c.err
				}, worker.WithClassifier(func(err error) error {
					switch err.Error() {
					case "fatal":
						return worker.Permanent(err)
					case "known":
						return nil
					}
					return err
				}))
				t.sleep(time.Hour)
				require.NoError(t, stop())
				require.Equal(t, append([]string{"a b c"}, c.retried...), got)
				require.Equal(t, c.dead, t.letters())
				require.Equal(t, c.stats, w.Stats())
				require.Empty(t, t.broker.Unacked())
				if strings.HasPrefix(name, "index") {
					require.Contains(t, t.log.String(), "BatchError has index")
				}
			})
		})
	}
}

func TestRetryAfterOfABatchErrorDelaysOnlyFailedMessages(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		t.publish("a")
		t.publish("b")
		calls := newCalls()
		_, stop := t.startBatch(worker.Batch{MaxMessages: 2, MaxWait: time.Millisecond}, func(_ context.Context, msgs []pulsar.Message) error {
			if calls.note(msgs[0]) == 1 {
				return worker.RetryAfter(time.Second, worker.BatchError{1: errTest})
			}
			return nil
		})
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []string{"a", "b"}, calls.what)
		require.Equal(t, []time.Duration{0, time.Second + 100*time.Microsecond + time.Millisecond}, calls.times())
	})
}

func TestOnlyFailedAcksOfABatchAreTriedAgain(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		for _, payload := range []string{"a", "b", "c"} {
			t.publish(payload)
		}
		began, tries := time.Now(), 0
		t.broker.Ack = func(id pulsar.MessageID) error {
			tries++
			if id.EntryID() == 1 && time.Since(began) < time.Second {
				return errTest
			}
			return nil
		}
		w, stop := t.startBatch(worker.Batch{MaxMessages: 3}, func(context.Context, []pulsar.Message) error { return nil })
		t.sleep(time.Minute)
		require.NoError(t, stop())
		require.EqualValues(t, 3, w.Stats().Succeeded)
		require.Equal(t, 3+5, tries)
		require.Empty(t, t.broker.Unacked())
	})
}

// If a pause or a drain begins while a batch is collected, the messages collected until then are handled.
func TestBatchIsHandledBeforePauseAndDrain(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		var got []string
		w, stop := t.startBatch(worker.Batch{MaxWait: time.Hour}, func(_ context.Context, msgs []pulsar.Message) error {
			got = append(got, text(msgs))
			return nil
		})
		t.publish("a")
		t.sleep(time.Second)
		require.Equal(t, worker.Stats{InFlight: 1}, w.Stats())
		w.Pause()
		t.sleep(0)
		require.Equal(t, []string{"a"}, got)
		w.Resume()
		t.publish("b")
		t.sleep(time.Second)
		require.NoError(t, stop())
		require.Equal(t, []string{"a", "b"}, got)
	})
}

func TestTextOfABatchErrorNamesItsFirstFailure(t *testing.T) {
	require.EqualError(t, worker.BatchError{7: errTest, 3: errors.New("first"), 1: nil}, "2 of the batch failed, first message 3: first")
	require.EqualError(t, worker.BatchError{}, "none of the batch failed")
}

// Prefetched messages go into a batch even if MaxWait is very short. Taking them takes time, so the test is in real
// time.
func TestBatchTakesPrefetchedMessages(t *testing.T) {
	r := &rig{T: t, log: &logtest.Buffer{}, logger: quiet}
	opts := orders
	opts.ReceiverQueueSize = 1000
	setup(r, opts, redelivery.WithLogger(quiet))
	defer r.consumer.Close()
	for range 1000 {
		r.publish("row")
	}
	var batches atomic.Int32
	w, stop := r.startBatch(worker.Batch{MaxMessages: 1000, MaxWait: time.Millisecond}, func(context.Context, []pulsar.Message) error {
		batches.Add(1)
		return nil
	}, worker.WithConcurrency(1))
	require.Eventually(t, func() bool { return w.Stats().Succeeded == 1000 }, 10*time.Second, time.Millisecond)
	require.NoError(t, stop())
	require.LessOrEqual(t, batches.Load(), int32(100))
}

// A handler may clear the slice that it gets, as slices.DeleteFunc does, and then panic.
func TestBatchHandlerThatClearsItsSliceAndPanicsFailsItsMessages(t *testing.T) {
	virtually(t, withDeadLetters(2), func(t *rig) {
		t.publish("a", "b", "c")
		_, stop := t.startBatch(worker.Batch{}, func(_ context.Context, msgs []pulsar.Message) error {
			clear(msgs)
			panic("oops")
		})
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []string{"a: panic: oops", "b: panic: oops", "c: panic: oops"}, t.letters())
		require.Empty(t, t.broker.Unacked())
	})
}
