package worker_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// backTalk is a slog.Handler that calls the Worker.
type backTalk struct {
	slog.Handler
	call func()
}

func (b *backTalk) Enabled(context.Context, slog.Level) bool { return true }

func (b *backTalk) Handle(ctx context.Context, r slog.Record) error {
	b.call()
	return b.Handler.Handle(ctx, r)
}

// The callbacks are a handler, middleware, a classifier, a policy and a logger.
func TestCallbacksMayCallTheirWorker(t *testing.T) {
	for name, option := range map[string]worker.Option{"each by itself": worker.WithConcurrency(2), "by key": worker.WithKeyOrder()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w *worker.Worker
				call := func() {
					if w != nil {
						w.Resume()
						_ = w.Stats()
					}
				}
				r := &rig{T: t, log: &logtest.Buffer{}}
				logger := slog.New(&backTalk{slog.NewTextHandler(r.log, nil), call})
				policy := backoff.Func(func(n uint32) time.Duration { call(); return time.Second })
				setup(r, withDeadLetters(4), redelivery.WithLogger(logger), redelivery.WithAckTimeout(2*time.Second),
					redelivery.WithNackRedeliveryBackoff(policy), redelivery.WithAckTimeoutRedeliveryBackoff(policy))
				defer r.consumer.Close()
				r.publishKeyed("a1", "a2", "b1", "b2", "c1", "stuck")
				var handled atomic.Int32
				w, err := worker.New(r.consumer, func(ctx context.Context, msg pulsar.Message) error {
					call()
					w.Pause()
					call() // resumes
					if n := handled.Add(1); string(msg.Payload()) == "stuck" {
						time.Sleep(time.Minute)
					} else if n < 9 {
						return errTest
					}
					return w.Run(ctx)
				}, option, worker.WithLogger(logger), worker.WithTimeout(5*time.Second), worker.WithPauseOnFailure(3, 1, policy),
					worker.WithMiddleware(func(next worker.Handler) worker.Handler {
						return func(ctx context.Context, msg pulsar.Message) error { call(); return next(ctx, msg) }
					}),
					worker.WithClassifier(func(err error) error {
						call()
						if strings.Contains(err.Error(), "called before") {
							return nil
						}
						return err
					}))
				require.NoError(t, err)
				stop := r.run(w)
				r.sleep(time.Hour)
				require.NoError(t, stop())
				require.GreaterOrEqual(t, w.Stats().Succeeded, uint64(6)) // the stuck message comes again
				require.Contains(t, r.log.String(), "a handler is stuck")
				require.Contains(t, r.log.String(), "most messages fail")
				require.Empty(t, r.broker.Unacked())
			})
		})
	}
}

// In the case idle all slots receive. In the other cases no slot does.
func TestLostConsumerEndsRunThoughNoSlotReceives(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		options []worker.Option
	}{
		"idle":                {nil, nil},
		"paused":              {worker.PauseFor(time.Hour, errTest), nil},
		"in an outage":        {errTest, []worker.Option{worker.WithPauseOnFailure(1, 1, backoff.Fixed(time.Second)), worker.WithConcurrency(1)}},
		"at the memory limit": {errTest, []worker.Option{worker.WithKeyOrder(), worker.WithConcurrency(2)}},
		"retrying a message":  {errTest, []worker.Option{worker.WithKeyOrder(), worker.WithConcurrency(1)}},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, exclusive(5), func(t *rig) {
				t.publishKeyed("a1", "a2", "a3")
				w, err := worker.New(t.consumer, func(context.Context, pulsar.Message) error { return c.err },
					append(c.options, worker.WithLogger(t.logger))...)
				require.NoError(t, err)
				done := make(chan error, 1)
				go func() { done <- w.Run(context.Background()) }()
				t.sleep(10 * time.Second)
				t.broker.GiveUp(errTest)
				t.sleep(2 * time.Minute)
				select {
				case err := <-done:
					require.ErrorContains(t, err, "the consumer is lost")
					require.ErrorIs(t, err, redelivery.ErrClosed)
				default:
					t.Fatal("Run does not return")
				}
			}, redelivery.WithAckTimeout(time.Hour))
		})
	}
}

// A handler must not settle its message or close the Consumer. If it does, nothing hangs or panics.
func TestHandlerMaySettleItsMessageOrCloseTheConsumer(t *testing.T) {
	for name, c := range map[string]struct {
		do    func(*redelivery.Consumer, pulsar.Message) error
		stats worker.Stats
		lost  bool
	}{
		"acknowledges": {func(c *redelivery.Consumer, msg pulsar.Message) error { return c.Ack(msg) }, worker.Stats{Succeeded: 2}, false},
		"acknowledges, and fails": {func(c *redelivery.Consumer, msg pulsar.Message) error { _ = c.Ack(msg); return errTest },
			worker.Stats{Failed: 2}, false},
		"nacks, and succeeds": {func(c *redelivery.Consumer, msg pulsar.Message) error { c.Nack(msg); return nil },
			worker.Stats{Succeeded: 2}, false},
		"closes the consumer": {func(c *redelivery.Consumer, msg pulsar.Message) error { c.Close(); return nil },
			worker.Stats{Unsettled: 1, Left: 1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, orders, func(t *rig) {
				t.publish("a")
				t.publish("b")
				w, err := worker.New(t.consumer, func(_ context.Context, msg pulsar.Message) error { return c.do(t.consumer, msg) },
					worker.WithConcurrency(1), worker.WithLogger(t.logger))
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
				defer cancel()
				if err := w.Run(ctx); c.lost {
					require.ErrorContains(t, err, "the consumer is lost")
					require.NoError(t, ctx.Err())
				} else {
					require.NoError(t, err)
				}
				require.Equal(t, c.stats, w.Stats())
			})
		})
	}
}

func TestSecondRunReturnsAnError(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		t.publish("a")
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		w, err := worker.New(t.consumer, func(context.Context, pulsar.Message) error { panic("called") }, worker.WithLogger(t.logger))
		require.NoError(t, err)
		require.NoError(t, w.Run(ctx))
		require.Equal(t, worker.Stats{}, w.Stats())
		require.ErrorContains(t, w.Run(context.Background()), "Run was called before")
	})
}

func TestRunWithNilContextHandlesMessages(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		t.publish("a")
		w, err := worker.New(t.consumer, func(ctx context.Context, _ pulsar.Message) error {
			time.AfterFunc(time.Second, t.consumer.Close)
			return ctx.Err()
		}, worker.WithLogger(t.logger))
		require.NoError(t, err)
		require.ErrorContains(t, w.Run(nil), "the consumer is lost") //nolint:staticcheck // as an application might
		require.EqualValues(t, 1, w.Stats().Succeeded)
	})
}

// The drain logs that the handler is stuck.
func TestLoggerMayCallTheWorkerAtTheEndOfADrain(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		var w *worker.Worker
		logger := slog.New(&backTalk{t.logger.Handler(), func() { _ = w.Stats() }})
		free := make(chan struct{})
		w, err := worker.New(t.consumer, func(context.Context, pulsar.Message) error {
			<-free
			return nil
		}, worker.WithLogger(logger), worker.WithDrainTimeout(time.Second))
		require.NoError(t, err)
		stop := t.run(w)
		t.publish("tea")
		t.sleep(time.Second)
		require.ErrorContains(t, stop(), "a handler did not return")
		require.Contains(t, t.log.String(), "a handler is stuck")
		close(free)
	})
}
