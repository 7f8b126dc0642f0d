package worker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// hanging returns a handler that ignores its context. With a message "hang" it hangs until release is called.
func hanging(c *calls) (handler worker.Handler, release func()) {
	released := make(chan struct{})
	return func(_ context.Context, msg pulsar.Message) error {
		c.note(msg)
		if string(msg.Payload()) == "hang" {
			<-released
		}
		return nil
	}, func() { close(released) }
}

// The message comes again after its ack timeout. Its redeliveries take no other slot, whatever the options.
func TestHangingMessageTakesOneSlot(t *testing.T) {
	for name, options := range map[string][]worker.Option{
		"alone": nil, "with a timeout": {worker.WithTimeout(10 * time.Second)}, "in key order": {worker.WithKeyOrder()},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, orders, func(t *rig) {
				calls := newCalls()
				handler, release := hanging(calls)
				w, stop := t.start(handler, append(options, worker.WithConcurrency(3))...)
				t.broker.Publish("orders", &pulsar.ProducerMessage{Payload: []byte("hang"), Key: "a"})
				t.sleep(time.Hour)
				for range 10 {
					t.publish("tea")
				}
				t.sleep(time.Hour)
				require.Equal(t, 11, len(calls.times()))
				require.Equal(t, 1, w.Stats().Stuck)
				require.NoError(t, w.Healthy())
				release()
				require.NoError(t, stop())
				require.Equal(t, uint64(11), w.Stats().Succeeded)
				require.Empty(t, t.broker.Unacked())
			}, redelivery.WithAckTimeout(3*time.Second))
		})
	}
}

// If the Worker gave messages back, the broker would deliver the stuck handler's message to a second handler. After the
// handler has returned, the Worker gives its messages back.
func TestPausedWorkerGivesNothingBackWhileAHandlerIsStuck(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		calls := newCalls()
		handler, release := hanging(calls)
		w, stop := t.start(handler, worker.WithConcurrency(1), worker.WithTimeout(10*time.Second), worker.WithStuckLimit(5*time.Second))
		t.publish("hang")
		t.sleep(time.Second)
		w.Pause()
		t.sleep(time.Hour)
		w.Resume()
		t.sleep(time.Hour)
		require.Len(t, calls.times(), 1)
		w.Pause()
		t.sleep(time.Hour)
		require.Equal(t, 1, t.broker.Consumers())
		release()
		t.sleep(time.Second)
		require.Zero(t, t.broker.Consumers())
		w.Resume()
		t.publish("tea")
		t.sleep(time.Hour)
		require.Len(t, calls.times(), 2)
		require.NoError(t, stop())
		require.Empty(t, t.broker.Unacked())
	})
}

func TestHangingMessageBecomesADeadLetter(t *testing.T) {
	virtually(t, withDeadLetters(4), func(t *rig) {
		calls := newCalls()
		handler, release := hanging(calls)
		_, stop := t.start(handler, worker.WithConcurrency(2), worker.WithTimeout(10*time.Second))
		t.publish("hang")
		t.sleep(time.Hour)
		require.Equal(t, []string{"hang: worker: the handler of an earlier delivery has not returned"}, t.letters())
		require.Len(t, calls.times(), 1)
		release()
		require.NoError(t, stop())
	}, redelivery.WithAckTimeout(3*time.Second))
}

// The handler is slower than the ack timeout. Its result settles the message.
func TestSlowHandlerIsNotCalledASecondTimeForItsMessage(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want []time.Duration
	}{
		"it succeeds": {nil, []time.Duration{0}},
		"it fails":    {errTest, []time.Duration{0, 12 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, orders, func(t *rig) {
				calls := newCalls()
				w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
					if calls.note(msg) > 1 {
						return nil
					}
					time.Sleep(10 * time.Second)
					return c.err
				}, worker.WithConcurrency(3))
				t.publish("tea")
				t.sleep(time.Hour)
				require.Equal(t, c.want, calls.times())
				require.NoError(t, stop())
				require.Equal(t, uint64(1), w.Stats().Succeeded)
				require.Empty(t, t.broker.Unacked())
			}, redelivery.WithAckTimeout(3*time.Second), redelivery.WithNackRedeliveryDelay(2*time.Second))
		})
	}
}

// The handler ignores the end of its context. Too many such handlers end Run.
func TestStuckHandlerLosesItsPlace(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		calls := newCalls()
		handler, release := hanging(calls)
		w, err := worker.New(t.consumer, handler, worker.WithConcurrency(2), worker.WithTimeout(10*time.Second),
			worker.WithStuckLimit(20*time.Second), worker.WithDrainTimeout(0), worker.WithLogger(t.logger))
		require.NoError(t, err)
		require.NoError(t, w.Healthy())
		stop := t.run(w)
		t.publish("hang")
		t.publish("hang")
		t.publish("tea")
		t.sleep(16 * time.Second)
		require.Equal(t, 2, w.Stats().Stuck)
		require.ErrorIs(t, w.Healthy(), worker.ErrStuck)
		t.sleep(13 * time.Second)
		require.Len(t, calls.times(), 2)
		t.sleep(time.Second)
		require.Len(t, calls.times(), 3)
		require.Equal(t, uint64(1), w.Stats().Succeeded)
		t.publish("hang")
		t.sleep(time.Minute)
		require.ErrorIs(t, w.Healthy(), worker.ErrStuck)
		err = stop()
		require.ErrorIs(t, err, worker.ErrStuck)
		require.Error(t, w.Healthy())
		release()
		t.sleep(time.Second)
		require.Zero(t, w.Stats().InFlight)
	})
}

// The stuck handler returns in the end.
func TestSlotThatReplacedAStuckHandlerKeepsItsPlace(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		calls := newCalls()
		active, most := 0, 0
		w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			if calls.note(msg) == 1 {
				time.Sleep(time.Minute)
				return errTest
			}
			active++
			most = max(most, active)
			time.Sleep(time.Second)
			active--
			return nil
		}, worker.WithConcurrency(1), worker.WithTimeout(10*time.Second))
		for range 100 {
			t.publish("tea")
		}
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, uint64(100), w.Stats().Succeeded)
		require.Equal(t, 1, most)
	}, redelivery.WithNackRedeliveryDelay(time.Second))
}

func TestHealthyReturnsAnErrorAfterTheConsumerIsLost(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		w, stop := t.start(func(context.Context, pulsar.Message) error { return nil })
		t.sleep(time.Second)
		t.consumer.Close()
		t.sleep(time.Second)
		require.ErrorIs(t, w.Healthy(), redelivery.ErrClosed)
		require.Error(t, stop())
	})
}

// The message may belong to another consumer when that consumer becomes active.
func TestCancelLostEndsTheContextOfALostMessagesHandler(t *testing.T) {
	for name, options := range map[string][]worker.Option{"without": nil, "with": {worker.WithCancelLost()}} {
		t.Run(name, func(t *testing.T) {
			failover := orders
			failover.Type = pulsar.Failover
			virtually(t, failover, func(t *rig) {
				other, err := redelivery.Subscribe(t.broker, failover, redelivery.WithLogger(quiet))
				require.NoError(t, err)
				defer other.Close()
				var cause error
				calls := newCalls()
				_, stop := t.start(func(ctx context.Context, msg pulsar.Message) error {
					if calls.note(msg) > 1 {
						return nil
					}
					select {
					case <-ctx.Done():
						cause = context.Cause(ctx)
					case <-time.After(10 * time.Second):
					}
					return cause
				}, options...)
				t.publish("tea")
				t.sleep(3 * time.Second)
				t.broker.Elect() // the other Consumer becomes active
				t.sleep(time.Minute)
				if len(options) == 0 {
					require.NoError(t, cause)
				} else {
					assert.True(t, errors.Is(cause, worker.ErrLost), cause)
				}
				require.NoError(t, stop())
			}, redelivery.WithNackRedeliveryDelay(time.Second))
		})
	}
}

// The message is lost after Receive took it, and before the slot calls the handler.
func TestCancelLostEndsTheContextOfAMessageLostBeforeTheCall(t *testing.T) {
	failover := orders
	failover.Type = pulsar.Failover
	lose := func() {}
	virtually(t, failover, func(t *rig) {
		other, err := redelivery.Subscribe(t.broker, failover, redelivery.WithLogger(quiet))
		require.NoError(t, err)
		defer other.Close()
		lose = t.broker.Elect
		var cause error
		_, stop := t.start(func(ctx context.Context, msg pulsar.Message) error {
			select {
			case <-ctx.Done():
				cause = context.Cause(ctx)
			case <-time.After(10 * time.Second):
			}
			return cause
		}, worker.WithCancelLost())
		t.publish("tea")
		t.sleep(time.Minute)
		require.ErrorIs(t, cause, worker.ErrLost)
		require.NoError(t, stop())
	}, redelivery.WithObserver(redelivery.Observer{Delivered: func(redelivery.Delivered) {
		lose()
		time.Sleep(time.Second)
	}}))
}

// The hanging message comes again, and the publication of its dead letter takes long.
func TestOthersDoNotWaitForAHangingMessage(t *testing.T) {
	for name, options := range map[string][]worker.Option{"in any order": nil, "in key order": {worker.WithKeyOrder()}} {
		t.Run(name, func(t *testing.T) {
			virtually(t, withDeadLetters(3), func(t *rig) {
				t.broker.Send = func(string) error { time.Sleep(20 * time.Second); return nil }
				calls := newCalls()
				handler, release := hanging(calls)
				_, stop := t.startBatch(worker.Batch{MaxMessages: 2, MaxWait: time.Second}, func(ctx context.Context, msgs []pulsar.Message) error {
					return handler(ctx, msgs[0])
				}, append(options, worker.WithConcurrency(2), worker.WithStuckLimit(5*time.Second))...)
				t.publish("hang")
				for range 60 {
					t.sleep(time.Second)
					t.publish("tea")
				}
				t.sleep(time.Minute)
				require.Equal(t, []string{"hang: worker: the handler of an earlier delivery has not returned"}, t.letters())
				release()
				require.NoError(t, stop())
				require.Empty(t, t.broker.Unacked())
				at := calls.times()
				for n := range at[1:] {
					require.LessOrEqual(t, at[n+1]-at[n], 3*time.Second)
				}
			}, redelivery.WithAckTimeout(3*time.Second), redelivery.WithNackRedeliveryDelay(10*time.Second))
		})
	}
}

// The slot lost its place because its handler was stuck. Then the handler returns an error that begins an outage.
func TestSlotThatLostItsPlaceDoesNotTryItsMessageInAnOutage(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		var atWork, hangs atomic.Int32
		_, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			if string(msg.Payload()) == "hang" {
				if hangs.Add(1) > 1 {
					assert.Zero(t, atWork.Load())
					return nil
				}
				time.Sleep(15 * time.Second)
				return errTest
			}
			atWork.Add(1)
			defer atWork.Add(-1)
			time.Sleep(6 * time.Second)
			return nil
		}, worker.WithConcurrency(1), worker.WithTimeout(2*time.Second), worker.WithStuckLimit(5*time.Second),
			worker.WithPauseOnFailure(1, 1, backoff.Fixed(500*time.Millisecond)))
		t.publish("hang")
		t.publish("tea")
		t.publish("coffee")
		t.sleep(time.Hour)
		require.Equal(t, int32(2), hangs.Load())
		require.NoError(t, stop())
	})
}

// If the message went to the retry topic, a second handler would get it from there while the first one has it.
func TestHangingMessageIsNotMovedToTheRetryTopic(t *testing.T) {
	opts := withDeadLetters(3)
	opts.RetryEnable = true
	for name, options := range map[string][]worker.Option{
		"":              nil,
		"in key order":  {worker.WithKeyOrder()},
		"with a policy": {worker.WithPolicy(func(pulsar.Message, error) backoff.RedeliveryBackoff { return backoff.Fixed(time.Minute) })},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, opts, func(t *rig) {
				calls := newCalls()
				_, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
					calls.note(msg)
					time.Sleep(time.Hour)
					return nil
				}, append(options, worker.WithConcurrency(2), worker.WithStuckLimit(5*time.Second))...)
				t.publishKeyed("a")
				t.sleep(30 * time.Minute)
				require.Empty(t, t.broker.Published("orders-billing-RETRY"))
				require.Equal(t, []string{"a: worker: the handler of an earlier delivery has not returned"}, t.letters())
				require.Len(t, calls.times(), 1)
				t.sleep(time.Hour)
				require.Empty(t, t.broker.Unacked())
				require.NoError(t, stop())
			}, redelivery.WithAckTimeout(6*time.Second), redelivery.WithNackRedeliveryDelay(3*time.Second), redelivery.WithNackRetryTopic(2*time.Second))
		})
	}
}

// The handler loses its place and returns while the dead letter of its message is being published.
func TestRunWaitsForTheDeadLetterOfAMessageWhoseHandlerWasStuck(t *testing.T) {
	virtually(t, withDeadLetters(2), func(t *rig) {
		t.broker.Send = func(string) error { time.Sleep(20 * time.Second); return nil }
		calls := newCalls()
		handler, release := hanging(calls)
		w, stop := t.start(handler, worker.WithConcurrency(2), worker.WithStuckLimit(5*time.Second))
		t.publish("hang")
		t.sleep(9 * time.Second)
		release()
		t.sleep(time.Second)
		began := time.Now()
		require.NoError(t, stop())
		require.Equal(t, 18*time.Second, time.Since(began))
		require.Equal(t, []string{"hang: worker: the handler of an earlier delivery has not returned"}, t.letters())
		require.Zero(t, w.Stats().Unsettled)
		require.Empty(t, t.broker.Unacked())
	}, redelivery.WithAckTimeout(3*time.Second))
}
