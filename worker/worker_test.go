package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/worker"
)

func succeed(context.Context, pulsar.Message) error { return nil }

func TestInvalidOptionsAreRefused(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		for _, c := range []struct {
			option worker.Option
			want   string
		}{
			{nil, "option 1 is nil, want an Option"},
			{worker.WithConcurrency(0), "WithConcurrency is 0, want 1 to 1,000,000"},
			{worker.WithConcurrency(math.MaxInt), "want 1 to 1,000,000"},
			{worker.WithTimeout(0), "WithTimeout is 0s, want more than 0"},
			{worker.WithTimeout(30), "WithTimeout is 30ns, want 1ms or more (30ns: is the unit missing?)"},
			{worker.WithDrainTimeout(30), "WithDrainTimeout is 30ns, want 1ms or more (30ns: is the unit missing?)"},
			{worker.WithMaxAge(30), "WithMaxAge is 30ns, want 1ms or more (30ns: is the unit missing?)"},
			{worker.WithBegunAfter(30), "WithBegunAfter is 30ns, want 1ms or more (30ns: is the unit missing?)"},
			{worker.WithDrainTimeout(-1), "WithDrainTimeout is -1ns, want 0 or more"},
			{worker.WithMaxAge(0), "WithMaxAge is 0s, want more than 0"},
			{worker.WithMiddleware(nil), "WithMiddleware's middleware 1 is nil, want a Middleware"},
			{worker.WithMiddleware(func(worker.Handler) worker.Handler { return nil }),
				"the handler of WithMiddleware's middleware 1 is nil, want a Handler"},
			{worker.WithClassifier(nil), "WithClassifier is nil, want a func(error) error"},
			{worker.WithLogger(nil), "WithLogger is nil, want a *slog.Logger"},
		} {
			_, err := worker.New(t.consumer, succeed, c.option)
			require.ErrorIs(t, err, redelivery.ErrInvalidOption)
			require.ErrorContains(t, err, c.want)
		}
		_, err := worker.New(nil, succeed)
		require.ErrorIs(t, err, redelivery.ErrInvalidOption)
		_, err = worker.New(t.consumer, nil)
		require.ErrorIs(t, err, redelivery.ErrInvalidOption)
	})
}

// The rows are those of the package's table: the results of the handler, when it is called, and the dead letters.
func TestResultOfTheHandlerDecidesTheOutcome(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("order 7: %w", err) }
	policy := backoff.Exponential{Min: time.Second, Max: time.Minute}
	for name, c := range map[string]struct {
		errs     []error // one for each call; the last one for all later calls, too
		panics   bool    // the handler panics with the error instead of returning it
		noDLQ    bool
		classify func(error) error
		calls    []time.Duration
		dead     []string
		stats    worker.Stats
	}{
		"nil": {
			errs: []error{nil}, calls: []time.Duration{0}, stats: worker.Stats{Succeeded: 1},
		},
		"an error, then nil": {
			errs: []error{errTest, errTest, nil}, calls: []time.Duration{0, time.Second, 3 * time.Second},
			stats: worker.Stats{Succeeded: 1, Failed: 2},
		},
		"an error at each delivery": {
			errs: []error{errTest}, calls: []time.Duration{0, time.Second, 3 * time.Second}, dead: []string{"tea: no luck"},
			stats: worker.Stats{Failed: 3},
		},
		"permanent": {
			errs: []error{worker.Permanent(errTest)}, calls: []time.Duration{0}, dead: []string{"tea: no luck"},
			stats: worker.Stats{Permanent: 1},
		},
		"permanent, wrapped": {
			errs: []error{wrap(worker.Permanent(errTest))}, calls: []time.Duration{0}, dead: []string{"tea: order 7: no luck"},
			stats: worker.Stats{Permanent: 1},
		},
		"permanent of nothing": {
			errs: []error{worker.Permanent(nil)}, calls: []time.Duration{0}, dead: []string{"tea: no reason given"},
			stats: worker.Stats{Permanent: 1},
		},
		"permanent without a dead letter topic": {
			errs: []error{worker.Permanent(errTest), nil}, noDLQ: true, calls: []time.Duration{0, time.Second},
			stats: worker.Stats{Failed: 1, Succeeded: 1, Unsettled: 1},
		},
		"retry after": {
			errs: []error{worker.RetryAfter(time.Minute, errTest), nil}, calls: []time.Duration{0, time.Minute},
			stats: worker.Stats{Failed: 1, Succeeded: 1},
		},
		"retry after, wrapped, a negative delay": {
			errs: []error{wrap(worker.RetryAfter(-time.Minute, errTest)), nil}, calls: []time.Duration{0, 0},
			stats: worker.Stats{Failed: 1, Succeeded: 1},
		},
		"retry after counts as an attempt": {
			errs:  []error{worker.RetryAfter(time.Minute, errTest)},
			calls: []time.Duration{0, time.Minute, 2 * time.Minute}, dead: []string{"tea: no luck"},
			stats: worker.Stats{Failed: 3},
		},
		"permanent wins over retry after": {
			errs:  []error{worker.RetryAfter(time.Minute, worker.Permanent(errTest))},
			calls: []time.Duration{0}, dead: []string{"tea: no luck"}, stats: worker.Stats{Permanent: 1},
		},
		"a panic": {
			errs: []error{errTest}, panics: true, calls: []time.Duration{0, time.Second, 3 * time.Second},
			dead: []string{"tea: panic: no luck"}, stats: worker.Stats{Failed: 3, Panics: 3},
		},
		"a panic with a permanent error": {
			errs: []error{worker.Permanent(errTest)}, panics: true, calls: []time.Duration{0},
			dead: []string{"tea: panic: no luck"}, stats: worker.Stats{Permanent: 1, Panics: 1},
		},
		"classified as permanent": {
			errs: []error{errTest}, classify: worker.Permanent, calls: []time.Duration{0}, dead: []string{"tea: no luck"},
			stats: worker.Stats{Permanent: 1},
		},
		"classified as success": {
			errs: []error{errTest}, classify: func(error) error { return nil }, calls: []time.Duration{0},
			stats: worker.Stats{Succeeded: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			opts := withDeadLetters(3)
			if c.noDLQ {
				opts.DLQ = nil
			}
			virtually(t, opts, func(t *rig) {
				calls := newCalls()
				var options []worker.Option
				if c.classify != nil {
					options = append(options, worker.WithClassifier(c.classify))
				}
				w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
					n := calls.note(msg)
					err := c.errs[min(n, len(c.errs))-1]
					if c.panics {
						panic(err)
					}
					return err
				}, options...)
				t.publish("tea")
				t.sleep(time.Hour)
				stats := w.Stats()
				require.NoError(t, stop())
				require.Equal(t, c.calls, calls.times())
				require.Equal(t, c.dead, t.letters())
				require.Equal(t, c.stats, stats)
				require.Empty(t, t.broker.Unacked())
			}, redelivery.WithNackRedeliveryBackoff(policy))
		})
	}
}

// A message that was not handled yet is handled, however old it is.
func TestFailureOfAnOldMessageMakesADeadLetter(t *testing.T) {
	virtually(t, withDeadLetters(99), func(t *rig) {
		t.publish("early")
		t.sleep(time.Hour)
		t.publish("late")
		calls := newCalls()
		w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			calls.note(msg)
			if string(msg.Payload()) == "early" && len(calls.times()) > 1 {
				return nil
			}
			return fmt.Errorf("failure: %w", errTest)
		}, worker.WithMaxAge(150*time.Second), worker.WithConcurrency(1))
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []string{"early", "late", "late", "late", "late"}, calls.what)
		require.Equal(t, []time.Duration{0, 0, time.Minute, 2 * time.Minute, 3 * time.Minute}, calls.times())
		require.Equal(t, []string{"early: older than 2m30s: failure: no luck", "late: older than 2m30s: failure: no luck"}, t.letters())
		require.Equal(t, worker.Stats{Failed: 3, Permanent: 2, Expired: 2}, w.Stats())
	})
}

// Stats count the message as failed.
func TestOldMessageWithoutADeadLetterTopicIsNacked(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			if msg.RedeliveryCount() < 2 {
				return errTest
			}
			return nil
		}, worker.WithMaxAge(time.Millisecond))
		t.publish("tea")
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, worker.Stats{Failed: 2, Succeeded: 1, Unsettled: 1}, w.Stats())
	})
}

func TestSecondRunAfterTheFirstReturnedIsRefused(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		w, stop := t.start(succeed)
		require.NoError(t, stop())
		require.ErrorContains(t, w.Run(context.Background()), "Run was called before")
	})
}

func TestRunWithADoneContextTakesNothing(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		t.publish("tea")
		synctest.Wait()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		w, err := worker.New(t.consumer, func(context.Context, pulsar.Message) error { panic("called") },
			worker.WithLogger(t.logger))
		require.NoError(t, err)
		require.NoError(t, w.Run(ctx))
		require.Zero(t, w.Stats())
	})
}

func TestMiddlewareIsCalledInOrderAndSeesPanics(t *testing.T) {
	virtually(t, withDeadLetters(1), func(t *rig) {
		var seen []string
		named := func(name string) worker.Middleware {
			return func(next worker.Handler) worker.Handler {
				return func(ctx context.Context, msg pulsar.Message) error {
					assert.Equal(t, "billing", worker.Subscription(ctx))
					seen = append(seen, name)
					err := next(ctx, msg)
					var panicked *worker.PanicError
					if errors.As(err, &panicked) {
						assert.Contains(t, string(panicked.Stack), "TestMiddlewareIsCalledInOrderAndSeesPanics")
						seen = append(seen, fmt.Sprintf("%s saw %v", name, err))
					}
					if name == "outer" {
						panic("outer's own")
					}
					return err
				}
			}
		}
		w, stop := t.start(func(context.Context, pulsar.Message) error { panic("handler's") },
			worker.WithMiddleware(named("outer")), worker.WithMiddleware(named("inner")))
		t.publish("secret")
		t.sleep(time.Second)
		require.NoError(t, stop())
		require.Equal(t, []string{"outer", "inner", "inner saw panic: handler's", "outer saw panic: handler's"}, seen)
		require.Equal(t, []string{"secret: panic: outer's own"}, t.letters())
		require.EqualValues(t, 2, w.Stats().Panics)
		require.Contains(t, t.log.String(), "message=1:0:0:0")
		require.NotContains(t, t.log.String(), "secret")
	})
}

func TestLoggingLogsEachMessage(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		var log logtest.Buffer
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		_, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			time.Sleep(time.Second)
			if string(msg.Payload()) == "bad" {
				return worker.Permanent(errTest)
			}
			return nil
		}, worker.WithMiddleware(worker.Logging(logger)), worker.WithConcurrency(1))
		t.publish("good")
		t.publish("bad")
		t.sleep(3 * time.Second)
		require.NoError(t, stop())
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		require.Len(t, lines, 2)
		require.Contains(t, lines[0], `level=DEBUG msg="worker: message handled" `+
			`topic=persistent://public/default/orders message=1:0:0:0 redelivery=0 duration=1s`)
		require.Contains(t, lines[1], `level=DEBUG msg="worker: message failed" `+
			`topic=persistent://public/default/orders message=1:1:0:0 redelivery=0 duration=1s error="no luck"`)
	})
}

// testing's FailNow ends its goroutine. The slot must continue.
func TestHandlerThatEndsItsGoroutineFailsItsMessage(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		calls := newCalls()
		w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			if calls.note(msg) <= 2 {
				runtime.Goexit()
			}
			return nil
		}, worker.WithConcurrency(1))
		t.publish("tea")
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []time.Duration{0, time.Minute, 2 * time.Minute}, calls.times())
		require.Equal(t, worker.Stats{Succeeded: 1, Failed: 2}, w.Stats())
	})
}
