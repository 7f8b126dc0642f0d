package worker_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// short is how many bytes a short message counts toward the memory limit.
const short = 521

// When waiting messages reach the memory limit, no message of any key is taken until a waiting one is done.
func TestWaitingMessagesAtTheMemoryLimitStopTheWorker(t *testing.T) {
	const limit = 6 * short
	virtually(t, orders, func(t *rig) {
		t.publishKeyed("a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "b1")
		d := &diary{began: time.Now()}
		w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			d.note(msg)
			if string(msg.Payload()) == "a0" {
				time.Sleep(time.Minute)
			}
			return nil
		}, worker.WithKeyOrder(), worker.WithConcurrency(3))
		t.sleep(time.Second)
		require.Equal(t, worker.Stats{InFlight: 1, Waiting: 6, Full: true}, w.Stats()) // the last one does not fit
		require.EqualValues(t, limit, t.consumer.Stats().BufferedBytes)
		require.Contains(t, t.log.String(), "the memory limit is reached")
		require.Equal(t, []string{"0s a0 0"}, d.all())
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Len(t, d.all(), 10)
		require.Equal(t, worker.Stats{Succeeded: 10}, w.Stats())
		require.Zero(t, t.consumer.Stats().BufferedBytes)
	}, redelivery.WithMemoryLimit(limit))
}

// A burst of one key has reached the limit. Other keys go on as soon as there is room, even if one key keeps more than
// half of the limit for long.
func TestOtherKeysGoOnWhenABurstOfOneKeyIsBelowTheMemoryLimit(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		t.publishKeyed("a0", "a1", "a2", "a3", "a4", "a5", "b0", "b1", "b2", "b3", "b4", "b5")
		w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			switch msg.Key() {
			case "a":
				return worker.RetryAfter(time.Hour, errTest)
			case "b":
				time.Sleep(time.Second)
			}
			return nil
		}, worker.WithKeyOrder(), worker.WithConcurrency(2))
		t.sleep(time.Minute)
		require.Equal(t, worker.Stats{Waiting: 6, Succeeded: 6, Failed: 1}, w.Stats())
		t.publishKeyed("c0", "d0")
		t.sleep(time.Minute)
		require.EqualValues(t, 8, w.Stats().Succeeded)
		require.NoError(t, stop())
	}, redelivery.WithMemoryLimit(10*short))
}

func TestFailedMessagesThatWaitCountTowardTheMemoryLimit(t *testing.T) {
	var full atomic.Int32
	observer := worker.WithObserver(worker.Observer{Paused: func(p worker.Paused) {
		if p.Paused {
			full.Add(1)
		} else {
			full.Add(-1)
		}
	}})
	virtually(t, orders, func(t *rig) {
		t.publishKeyed("a1", "b1", "c1", "d1", "a2", "b2", "c2")
		w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			if msg.RedeliveryCount() == 0 {
				return errTest
			}
			return nil
		}, observer, worker.WithKeyOrder(), worker.WithConcurrency(1))
		t.sleep(time.Second)
		require.Equal(t, worker.Stats{Waiting: 5, Failed: 4, Full: true}, w.Stats())
		require.EqualValues(t, 1, full.Load())
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, worker.Stats{Succeeded: 7, Failed: 7}, w.Stats())
		require.Zero(t, full.Load())
	}, redelivery.WithMemoryLimit(4*short))
}

// Messages that wait for redelivery share a limit with messages that wait for their keys. The former make room, since
// the broker can send them again.
func TestMessagesThatWaitForRedeliveryMakeRoomForKeyOrder(t *testing.T) {
	const limit = 20 * short
	virtually(t, orders, func(t *rig) {
		for range 30 {
			t.publish("without a key")
		}
		w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			if msg.Key() == "" && msg.RedeliveryCount() == 0 || strings.HasPrefix(string(msg.Payload()), "a0") {
				return worker.RetryAfter(time.Hour, errTest)
			}
			return nil
		}, worker.WithKeyOrder(), worker.WithConcurrency(2))
		t.sleep(time.Minute)
		require.Greater(t, t.consumer.Stats().BufferedBytes, int64(limit*9/20)) // nearly half of it
		t.publishKeyed("a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9", "b0")
		t.sleep(time.Minute)
		require.Equal(t, worker.Stats{Waiting: 10, Succeeded: 1, Failed: 31}, w.Stats())
		require.LessOrEqual(t, t.consumer.Stats().BufferedBytes, int64(limit))
		require.NoError(t, stop())
	}, redelivery.WithMemoryLimit(limit))
}

// The messages that filled the memory limit are lost. Then there is room for new ones, also while another slot collects
// a batch.
func TestLostMessagesMakeRoom(t *testing.T) {
	virtually(t, exclusive(1), func(t *rig) {
		began := time.Now()
		_, stop := t.startBatch(worker.Batch{MaxMessages: 3}, func(context.Context, []pulsar.Message) error {
			if time.Since(began) > 30*time.Second {
				return nil
			}
			time.Sleep(15 * time.Second)
			return errTest // the batch fails as a whole, so it is halved
		}, worker.WithKeyOrder(), worker.WithConcurrency(2))
		t.publishKeyed("a", "-", "c", "a", "a", "a", "a")
		t.sleep(time.Second)
		t.broker.Reconnect()
		t.sleep(16 * time.Second)
		t.broker.Reconnect() // no slot takes the redeliveries until the lost messages are dropped
		t.sleep(time.Hour)
		require.Empty(t, t.broker.Unacked())
		require.NoError(t, stop())
	}, redelivery.WithMemoryLimit(1500))
}

// A service is down. The failed messages count toward the limit like the messages that wait for them.
func TestFailuresOfManyKeysReachTheMemoryLimit(t *testing.T) {
	for name, maxDeliveries := range map[string]uint32{"without dead letters": 0, "with dead letters": 3} {
		t.Run(name, func(t *testing.T) {
			opts := exclusive(maxDeliveries)
			if maxDeliveries == 0 {
				opts.DLQ = nil
			}
			virtually(t, opts, func(t *rig) {
				var down atomic.Bool
				down.Store(true)
				w, stop := t.start(func(context.Context, pulsar.Message) error {
					time.Sleep(10 * time.Millisecond)
					if down.Load() {
						return errTest
					}
					return nil
				}, worker.WithKeyOrder(), worker.WithConcurrency(4))
				for n := range 500 {
					t.broker.Publish("orders", &pulsar.ProducerMessage{Payload: make([]byte, 10_000), Key: strconv.Itoa(n)})
				}
				most := 0
				for range 600 {
					t.sleep(100 * time.Millisecond)
					most = max(most, w.Stats().Waiting)
				}
				require.LessOrEqual(t, most, 9+2*4, "too many messages wait: only nine fit")
				require.Greater(t, most, 4)
				require.True(t, w.Stats().Full)
				down.Store(false)
				t.sleep(time.Minute)
				require.NoError(t, stop())
				require.Empty(t, t.broker.Unacked())
				require.Zero(t, w.Stats().Left)
			}, redelivery.WithMemoryLimit(100_000), redelivery.WithNackRedeliveryDelay(time.Second))
		})
	}
}

// In an outage the Worker looks at only one message beyond the memory limit, however many failed before.
func TestFailuresOfAnOutageReachTheMemoryLimit(t *testing.T) {
	opts := exclusive(0)
	opts.DLQ = nil
	virtually(t, opts, func(t *rig) {
		var down atomic.Bool
		var n atomic.Int64
		w, stop := t.start(func(context.Context, pulsar.Message) error {
			if down.Load() || n.Add(1)%2 == 0 {
				return errTest
			}
			return nil
		}, worker.WithConcurrency(4), worker.WithPauseOnFailure(20, 0.9, backoff.Fixed(time.Second)))
		publish := func(many int) {
			for range many {
				t.broker.Publish("orders", &pulsar.ProducerMessage{Payload: make([]byte, 10_000)})
			}
		}
		publish(300) // half of them come again in the outage
		t.sleep(time.Second)
		down.Store(true)
		publish(100)
		most := 0
		for range 600 {
			t.sleep(100 * time.Millisecond)
			most = max(most, w.Stats().InFlight)
		}
		require.True(t, w.Stats().Outage)
		require.LessOrEqual(t, most, 9+2*4, "too many messages are kept: only nine fit")
		down.Store(false)
		n.Store(0)
		for len(t.broker.Unacked()) > 0 { // half of them fail each time
			t.sleep(time.Second)
		}
		require.False(t, w.Stats().Outage)
		require.NoError(t, stop())
		require.Zero(t, w.Stats().Left)
	}, redelivery.WithMemoryLimit(100_000), redelivery.WithNackRedeliveryDelay(5*time.Second))
}

// In an outage, the large messages always fail and do not fit the limit.
func TestProbesReachMessagesBehindLargeFailures(t *testing.T) {
	for _, kind := range []pulsar.SubscriptionType{pulsar.Exclusive, pulsar.Shared} {
		for _, pause := range []time.Duration{10 * time.Millisecond, 10 * time.Second} {
			t.Run(fmt.Sprint(kind, pause), func(t *testing.T) {
				opts := exclusive(0)
				opts.DLQ, opts.Type = nil, kind
				virtually(t, opts, func(t *rig) {
					var good atomic.Int64
					w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
						if msg.Key() == "bad" {
							return errTest
						}
						good.Add(1)
						return nil
					}, worker.WithConcurrency(4), worker.WithPauseOnFailure(20, 0.9, backoff.Fixed(pause)))
					for range 60 {
						t.broker.Publish("orders", &pulsar.ProducerMessage{Payload: make([]byte, 10_000), Key: "bad"})
					}
					for range 100 {
						t.broker.Publish("orders", &pulsar.ProducerMessage{Payload: make([]byte, 10_000)})
					}
					t.sleep(15 * time.Minute)
					require.EqualValues(t, 100, good.Load())
					require.False(t, w.Stats().Outage)
					require.NoError(t, stop())
				}, redelivery.WithMemoryLimit(100_000), redelivery.WithNackRedeliveryDelay(time.Hour))
			})
		}
	}
}

// The slot that handled the message without room cannot take others: it has lost its place, or another slot is
// collecting a batch or waiting for the rate limit.
func TestWorkerTakesMessagesWhenTheOneWithoutRoomIsDone(t *testing.T) {
	last := func(stuck time.Duration) worker.Handler {
		failed := false
		return func(_ context.Context, msg pulsar.Message) error {
			switch key := msg.Key(); {
			case key == "s":
				time.Sleep(stuck)
			case key < "d":
				return worker.RetryAfter(2*time.Hour, errTest)
			case key == "l" && !failed:
				failed = true
				return worker.RetryAfter(time.Second, errTest)
			case key == "l":
				time.Sleep(5 * time.Minute)
			}
			return nil
		}
	}
	for name, begin := range map[string]func(*rig, worker.Handler, ...worker.Option) (*worker.Worker, func() error){
		"plain": func(t *rig, h worker.Handler, o ...worker.Option) (*worker.Worker, func() error) {
			return t.start(h, o...)
		},
		"rate limit": func(t *rig, h worker.Handler, o ...worker.Option) (*worker.Worker, func() error) {
			return t.start(h, append(o, worker.WithRateLimit(rate.NewLimiter(1000, 10)))...)
		},
		"batch": func(t *rig, h worker.Handler, o ...worker.Option) (*worker.Worker, func() error) {
			w, err := worker.NewBatch(t.consumer, func(ctx context.Context, msgs []pulsar.Message) error {
				errs := worker.BatchError{}
				for i, msg := range msgs {
					errs[i] = h(ctx, msg)
				}
				return errs
			}, worker.Batch{MaxMessages: 10}, append(o, worker.WithLogger(t.logger))...)
			require.NoError(t, err)
			return w, t.run(w)
		},
		"stuck": func(t *rig, h worker.Handler, o ...worker.Option) (*worker.Worker, func() error) {
			t.publishKeyed("s0", "s1", "s2", "s3")
			return t.start(h, append(o, worker.WithTimeout(10*time.Second), worker.WithStuckLimit(5*time.Second))...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, orders, func(t *rig) {
				var paused atomic.Bool
				w, stop := begin(t, last(20*time.Minute), worker.WithKeyOrder(), worker.WithConcurrency(2),
					worker.WithObserver(worker.Observer{Paused: func(p worker.Paused) { paused.Store(p.Paused) }}))
				if name != "stuck" {
					t.publishKeyed("a0", "b0", "c0", "c1")
				}
				t.sleep(time.Second)
				t.publishKeyed("l0")
				t.sleep(2 * time.Second)
				require.True(t, w.Stats().Full)
				require.True(t, paused.Load())
				t.publishKeyed("d0", "e0")
				t.sleep(10 * time.Minute)
				require.EqualValues(t, 3, w.Stats().Succeeded)
				require.False(t, w.Stats().Full)
				require.False(t, paused.Load())
				t.sleep(5 * time.Hour) // until the handlers are no longer stuck
				_ = stop()
			}, redelivery.WithMemoryLimit(4*short))
		})
	}
}

// The message that always fails is the only one that the Worker handles, so none is done. Meanwhile the Consumer makes
// room: nobody takes its due messages, so it leaves them to the broker.
func TestWorkerTakesMessagesWhenTheConsumerMakesRoom(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			switch {
			case string(msg.Payload()) == "a0":
				time.Sleep(2 * time.Second)
				return worker.RetryAfter(time.Second, errTest)
			case msg.Key() == "" && msg.RedeliveryCount() == 0:
				return worker.RetryAfter(time.Second, errTest)
			}
			return nil
		}, worker.WithKeyOrder(), worker.WithConcurrency(1))
		t.publishKeyed("a0", "-0", "-1", "-2", "-3", "-4", "-5", "-6", "-7")
		t.sleep(4 * time.Second) // a0 is tried again, and the others are due
		t.publishKeyed("a1" + strings.Repeat(" ", 2*short))
		t.sleep(10 * time.Second)
		require.True(t, w.Stats().Full)
		t.sleep(5 * time.Minute)
		require.EqualValues(t, 8, w.Stats().Succeeded)
		require.NoError(t, stop())
	}, redelivery.WithMemoryLimit(8*short))
}
