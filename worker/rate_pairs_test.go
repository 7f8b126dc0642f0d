package worker_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// While a message waits for the rate limit, another consumer becomes active and gets it. This Worker does not handle
// the message.
func TestMessageLostWhileItWaitsForTheRateLimitIsNotHandled(t *testing.T) {
	opts := ofKind(pulsar.Failover)
	virtually(t, opts, func(t *rig) {
		calls := newCalls()
		handle := func(_ context.Context, msg pulsar.Message) error {
			calls.note(msg)
			time.Sleep(4 * time.Second)
			return nil
		}
		w, stop := t.start(handle, worker.WithConcurrency(2), worker.WithKeyOrder(), worker.WithRateLimit(rate.NewLimiter(rate.Every(10*time.Second), 1)))
		other, err := redelivery.Subscribe(t.broker, opts, redelivery.WithLogger(quiet))
		require.NoError(t, err)
		defer other.Close()
		wOfOther, err := worker.New(other, handle, worker.WithConcurrency(2), worker.WithKeyOrder(), worker.WithLogger(quiet))
		require.NoError(t, err)
		stopOther := t.run(wOfOther)
		t.publishKeyed("a1", "b1", "b2", "b3")
		t.sleep(5 * time.Second) // b1 waits for the rate limit
		t.broker.Elect()
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.NoError(t, stopOther())
		require.Equal(t, []string{"a1", "b1", "b2", "b3"}, calls.what)
		require.EqualValues(t, 1, w.Stats().Succeeded)
		require.EqualValues(t, 1, w.Stats().Lost)
		require.Empty(t, t.broker.Unacked())
	})
}

// In an outage, the message that is tried next (the probe) waits for the rate limit. Meanwhile another consumer becomes
// active and gets it.
func TestNextMessageIsTriedWhenAProbeIsLostAtTheRateLimit(t *testing.T) {
	opts := ofKind(pulsar.Failover)
	virtually(t, opts, func(t *rig) {
		var down atomic.Bool
		down.Store(true)
		w, stop := t.start(func(context.Context, pulsar.Message) error {
			if down.Load() {
				return errTest
			}
			return nil
		}, worker.WithConcurrency(2), worker.WithPauseOnFailure(2, 1, backoff.Fixed(500*time.Millisecond)),
			worker.WithRateLimit(rate.NewLimiter(rate.Every(10*time.Second), 1)))
		other, err := redelivery.Subscribe(t.broker, opts, redelivery.WithLogger(quiet))
		require.NoError(t, err)
		wOfOther, err := worker.New(other, func(context.Context, pulsar.Message) error { return nil }, worker.WithLogger(quiet))
		require.NoError(t, err)
		stopOther := t.run(wOfOther)
		t.publish("a", "b", "c")
		t.sleep(15 * time.Second) // the third message waits for the rate limit
		require.True(t, w.Stats().Outage)
		t.broker.Elect()
		t.sleep(time.Minute)
		require.NoError(t, stopOther())
		other.Close()
		require.Empty(t, t.broker.Unacked())
		down.Store(false)
		t.publish("d", "e")
		t.sleep(time.Hour)
		require.False(t, w.Stats().Outage)
		require.Empty(t, t.broker.Unacked())
		require.NoError(t, stop())
	})
}

func TestMessageAtTheRateLimitIsNotHandledAfterTheConsumerGaveUp(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		calls := newCalls()
		_, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			calls.note(msg)
			return nil
		}, worker.WithConcurrency(3), worker.WithRateLimit(rate.NewLimiter(rate.Every(10*time.Minute), 1)))
		t.publish("a", "b")
		t.sleep(5 * time.Second)
		t.broker.GiveUp(errTest)
		t.sleep(time.Hour)
		require.ErrorIs(t, stop(), redelivery.ErrClosed)
		require.Equal(t, []time.Duration{0}, calls.times())
	})
}

func TestLostConsumerEndsRunAtARateLimitOf0(t *testing.T) {
	for _, batches := range []bool{false, true} {
		t.Run(fmt.Sprint("batches ", batches), func(t *testing.T) {
			virtually(t, orders, func(t *rig) {
				var running atomic.Bool
				options := []worker.Option{worker.WithRateLimit(rate.NewLimiter(0, 1)),
					worker.WithObserver(worker.Observer{Running: func(r worker.Running) { running.Store(r.Running) }})}
				var stop func() error
				if batches {
					_, stop = t.startBatch(worker.Batch{MaxMessages: 2}, func(context.Context, []pulsar.Message) error { return nil }, options...)
				} else {
					_, stop = t.start(succeed, options...)
				}
				t.publish("a", "b", "c", "d")
				t.sleep(5 * time.Second)
				t.broker.GiveUp(errTest)
				t.sleep(time.Hour)
				require.False(t, running.Load())
				require.ErrorIs(t, stop(), redelivery.ErrClosed)
			})
		})
	}
}

// An outage ends while the Worker has a rate limit. All messages that the outage put aside are handled.
func TestEndOfAnOutageReleasesAllMessagesToTheRateLimit(t *testing.T) {
	for range 20 { // the order of the slots is random
		virtually(t, orders, func(t *rig) {
			w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
				switch {
				case string(msg.Payload()) == "slow":
					time.Sleep(5 * time.Second)
					return nil
				case msg.RedeliveryCount() == 0:
					return worker.RetryAfter(6*time.Second, errTest)
				}
				return nil
			}, worker.WithConcurrency(2), worker.WithRateLimit(rate.NewLimiter(100, 10)), worker.WithPauseOnFailure(1, 1, backoff.Fixed(2*time.Second)))
			t.publish("slow", "fails")
			t.sleep(10 * time.Minute)
			assert.Empty(t, t.broker.Unacked())
			require.NoError(t, stop())
			require.EqualValues(t, 2, w.Stats().Succeeded)
		})
	}
}

func TestPausedWorkerWithARateLimitGivesItsMessagesBack(t *testing.T) {
	for _, concurrency := range []int{1, 2} {
		t.Run(fmt.Sprint("concurrency ", concurrency), func(t *testing.T) {
			virtually(t, orders, func(t *rig) {
				w, stop := t.start(succeed, worker.WithConcurrency(concurrency), worker.WithRateLimit(rate.NewLimiter(1000, 1000)))
				t.sleep(time.Second)
				w.Pause()
				t.sleep(time.Second)
				for n := range 10 {
					t.publish(fmt.Sprint(n))
				}
				t.sleep(time.Second)
				assert.Zero(t, t.broker.Consumers())
				w.Resume()
				t.sleep(time.Minute)
				require.NoError(t, stop())
				require.EqualValues(t, 10, w.Stats().Succeeded)
			})
		})
	}
}

func TestPausedWorkerHandlesTheMessageAtTheRateLimitAndGivesBackOthers(t *testing.T) {
	for _, concurrency := range []int{1, 2} {
		t.Run(fmt.Sprint("concurrency ", concurrency), func(t *testing.T) {
			virtually(t, orders, func(t *rig) {
				w, stop := t.start(succeed, worker.WithConcurrency(concurrency), worker.WithRateLimit(rate.NewLimiter(1, 1)))
				for n := range 50 {
					t.publish(fmt.Sprint(n))
				}
				t.sleep(5500 * time.Millisecond)
				w.Pause()
				t.sleep(time.Minute)
				assert.Zero(t, t.broker.Consumers())
				require.EqualValues(t, 7, w.Stats().Succeeded)
				w.Resume()
				t.sleep(time.Hour)
				require.NoError(t, stop())
				require.EqualValues(t, 50, w.Stats().Succeeded)
			})
		})
	}
}

func TestDrainFinishesBegunBatchesAtTheRateLimit(t *testing.T) {
	t.Parallel()
	const each = 100
	for name, limiter := range map[string]*rate.Limiter{"unlimited": rate.NewLimiter(rate.Inf, 1), "5000 a second": rate.NewLimiter(5000, 1000)} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.subscribe(pulsar.ConsumerOptions{Type: pulsar.Shared}).Close()
			publishBatches(t, s, 5, each)
			c := s.subscribe(pulsar.ConsumerOptions{Type: pulsar.Shared})
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			var handled atomic.Int32
			w, err := worker.New(c, func(context.Context, pulsar.Message) error {
				time.Sleep(time.Millisecond)
				if handled.Add(1) == each+each/3 {
					stop()
				}
				return nil
			}, worker.WithConcurrency(2), worker.WithLogger(quiet), worker.WithRateLimit(limiter))
			require.NoError(t, err)
			require.NoError(t, w.Run(ctx))
			require.Zero(t, c.Stats().Unfinished)
			require.Zero(t, w.Stats().Succeeded%each)
		})
	}
}

// Giving messages back makes the Consumer subscribe again. So one SUBSCRIBE shows that none was given back.
func TestSlotsAtTheRateLimitGiveNothingBack(t *testing.T) {
	t.Parallel()
	s := newSiteInProcess(t)
	var subscribed, handled atomic.Int32
	s.inProcess.SetHook(func(c pulsartest.Command) pulsartest.Verdict {
		if c.Type == "SUBSCRIBE" {
			subscribed.Add(1)
		}
		return pulsartest.Pass
	})
	c := s.subscribe(pulsar.ConsumerOptions{Type: pulsar.Shared})
	publishBatches(t, s, 300, 1)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	w, err := worker.New(c, func(context.Context, pulsar.Message) error {
		if handled.Add(1) == 300 {
			stop()
		}
		return nil
	}, worker.WithConcurrency(4), worker.WithRateLimit(rate.NewLimiter(300, 1)), worker.WithLogger(quiet))
	require.NoError(t, err)
	require.NoError(t, w.Run(ctx))
	require.EqualValues(t, 1, subscribed.Load())
}

// Each batch needs the tokens of two seconds, and a loop takes single tokens of the same limiter.
func TestWorkerOfBatchesGetsItsShareOfALimiter(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		limiter := rate.NewLimiter(10, 20)
		var batched atomic.Int32
		_, stop := t.startBatch(worker.Batch{MaxMessages: 20}, func(_ context.Context, msgs []pulsar.Message) error {
			batched.Add(int32(len(msgs)))
			return nil
		}, worker.WithRateLimit(limiter), worker.WithConcurrency(1))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for limiter.Wait(ctx) == nil {
				continue
			}
		}()
		t.sleep(time.Minute)
		for range 2000 {
			t.publish("a")
		}
		t.sleep(10 * time.Minute)
		require.Greater(t, batched.Load(), int32(1000))
		cancel()
		<-ended
		require.NoError(t, stop())
	})
}

// There are more Workers than tokens in a second. Together they get as much as the limit allows, even if the limit
// changes all the time.
func TestWorkersShareALimiterEqually(t *testing.T) {
	for name, c := range map[string]struct {
		limiter     *rate.Limiter
		batches     bool                               // of a hundred messages
		change      func(*rate.Limiter, time.Duration) // called twice a second
		least, most int32                              // messages of each Worker in 16 minutes
	}{
		"a limit":                      {rate.NewLimiter(5, 1), false, func(*rate.Limiter, time.Duration) {}, 540, 660},
		"a limit that changes":         {rate.NewLimiter(5, 1), false, func(l *rate.Limiter, d time.Duration) { l.SetLimit(5 + rate.Limit(d)/1e15) }, 540, 660},
		"a limit that is lowered soon": {rate.NewLimiter(100, 100), true, func(l *rate.Limiter, _ time.Duration) { l.SetLimit(1) }, 100, 200},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, orders, func(t *rig) {
				const n = 8
				var handled [n]atomic.Int32
				for i := range handled {
					other := &rig{T: t.T, log: t.log, logger: quiet}
					setup(other, orders, redelivery.WithLogger(quiet))
					defer other.consumer.Close()
					for range 2000 {
						other.publish("a")
					}
					var stop func() error
					if c.batches {
						_, stop = other.startBatch(worker.Batch{MaxMessages: 100}, func(_ context.Context, msgs []pulsar.Message) error {
							handled[i].Add(int32(len(msgs)))
							return nil
						}, worker.WithRateLimit(c.limiter))
					} else {
						_, stop = other.start(func(context.Context, pulsar.Message) error {
							handled[i].Add(1)
							return nil
						}, worker.WithRateLimit(c.limiter))
					}
					defer func() { require.NoError(t, stop()) }()
				}
				for began := time.Now(); time.Since(began) < 16*time.Minute; {
					t.sleep(time.Second / 2)
					c.change(c.limiter, time.Since(began))
				}
				for i := range handled {
					require.GreaterOrEqual(t, handled[i].Load(), c.least)
					require.LessOrEqual(t, handled[i].Load(), c.most)
				}
			})
		})
	}
}

// A message waits for the rate limit when the drain begins. It is handled if other messages of its producer's batch
// were handled, and if there is time for the rest of that batch.
func TestDrainFinishesABatchThatWaitsForTheRateLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		drain time.Duration
		left  int // messages of the batch that are left to the broker
	}{{time.Minute, 0}, {2 * time.Second, 80}} {
		t.Run(c.drain.String(), func(t *testing.T) {
			t.Parallel()
			s := newSiteInProcess(t)
			s.subscribe(pulsar.ConsumerOptions{Type: pulsar.Failover}).Close()
			publishBatches(t, s, 1, 100)
			consumer := s.subscribe(pulsar.ConsumerOptions{Type: pulsar.Failover})
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			var handled atomic.Int32
			w, err := worker.New(consumer, func(context.Context, pulsar.Message) error {
				if handled.Add(1) == 10 {
					time.AfterFunc(5*time.Millisecond, stop)
				}
				return nil
			}, worker.WithConcurrency(4), worker.WithLogger(quiet), worker.WithDrainTimeout(c.drain), worker.WithRateLimit(rate.NewLimiter(20, 1)))
			require.NoError(t, err)
			began := time.Now()
			require.NoError(t, w.Run(ctx))
			require.GreaterOrEqual(t, time.Since(began), time.Duration(handled.Load()-1)*time.Second/20) // at most 20 a second
			require.InDelta(t, 100-c.left, handled.Load(), 15)
			require.Equal(t, c.left == 0, handled.Load() == 100)
		})
	}
}
