package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// The ack timeouts of messages that the Worker has not taken do not run.
func TestConcurrencyLimitsTheMessagesTaken(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		calls := newCalls()
		for range 6 {
			t.publish("tea")
		}
		w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			calls.note(msg)
			time.Sleep(3 * time.Second)
			return nil
		}, worker.WithConcurrency(2))
		t.sleep(time.Second)
		require.Equal(t, 2, w.Stats().InFlight)
		t.sleep(time.Hour)
		require.Equal(t, []time.Duration{0, 0, 3 * time.Second, 3 * time.Second, 6 * time.Second, 6 * time.Second}, calls.times())
		require.NoError(t, stop())
	}, redelivery.WithAckTimeout(4*time.Second))
}

func TestPausedWorkerTakesNoMessagesUntilResume(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		calls := newCalls()
		handler := func(_ context.Context, msg pulsar.Message) error {
			calls.note(msg)
			time.Sleep(10 * time.Second)
			return nil
		}
		w, err := worker.New(t.consumer, handler, worker.WithConcurrency(2), worker.WithTimeout(time.Minute),
			worker.WithLogger(t.logger))
		require.NoError(t, err)
		w.Pause() // before Run
		stop := t.run(w)
		t.publish("a")
		t.sleep(time.Second)
		require.Empty(t, calls.times())
		require.True(t, w.Stats().Paused)

		w.Resume()
		w.Resume()
		t.sleep(time.Second) // a is in its handler
		w.Pause()
		w.Pause()
		t.publish("b")
		t.sleep(time.Minute) // a is handled to the end, with its ack timeout of 3 s renewed
		require.Equal(t, worker.Stats{Paused: true, Succeeded: 1}, w.Stats())
		w.Resume()
		t.sleep(time.Minute)
		require.Equal(t, []time.Duration{time.Second, 62 * time.Second}, calls.times())
		w.Pause()
		require.NoError(t, stop()) // while paused
		require.Equal(t, 2, strings.Count(t.log.String(), "worker: resumed"))
		require.Equal(t, 3, strings.Count(t.log.String(), "worker: paused"))
	}, redelivery.WithAckTimeout(3*time.Second))
}

func TestTimeoutRenewsTheAckTimeout(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		calls := newCalls()
		w, stop := t.start(func(ctx context.Context, msg pulsar.Message) error {
			if calls.note(msg) > 1 {
				return nil
			}
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), worker.ErrTimeout)
			assert.Equal(t, time.Minute, time.Since(calls.began))
			return ctx.Err()
		}, worker.WithTimeout(time.Minute))
		t.publish("tea")
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []time.Duration{0, time.Minute + time.Second}, calls.times())
		require.Equal(t, worker.Stats{Succeeded: 1, Failed: 1}, w.Stats())
	}, redelivery.WithAckTimeout(3*time.Second), redelivery.WithNackRedeliveryDelay(time.Second))
}

func TestLongestTimeoutDoesNotOverflow(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		w, stop := t.start(func(context.Context, pulsar.Message) error { time.Sleep(time.Hour); return nil },
			worker.WithTimeout(math.MaxInt64))
		t.publish("tea")
		t.sleep(time.Minute)
		require.Equal(t, worker.Stats{InFlight: 1}, w.Stats())
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.NotContains(t, t.log.String(), "a handler is stuck")
		require.Equal(t, worker.Stats{Succeeded: 1}, w.Stats())
	}, redelivery.WithAckTimeout(3*time.Second))
}

// After the ack timeout the message is delivered again, but this Worker does not handle it a second time while the
// first handler runs.
func TestAckTimeoutIsTheLimitWithoutWithTimeout(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		calls := newCalls()
		_, stop := t.start(func(ctx context.Context, msg pulsar.Message) error {
			if calls.note(msg) == 1 {
				time.Sleep(time.Minute)
			}
			return nil
		}, worker.WithConcurrency(2))
		t.publish("tea")
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []time.Duration{0}, calls.times())
		require.Equal(t, uint64(1), t.consumer.Stats().Redelivered)
	}, redelivery.WithAckTimeout(3*time.Second))
}

func TestStuckHandlerKeepsItsSlotForAWhile(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		free := make(chan struct{})
		calls := newCalls()
		w, stop := t.start(func(ctx context.Context, msg pulsar.Message) error {
			if calls.note(msg) == 1 {
				<-free
			}
			return nil
		}, worker.WithTimeout(time.Second), worker.WithStuckLimit(time.Hour), worker.WithConcurrency(1))
		t.publish("tea")
		t.publish("coffee")
		t.sleep(6*time.Second - 1)
		require.Zero(t, w.Stats().Stuck)
		require.NotContains(t, t.log.String(), "stuck")
		t.sleep(1)
		require.Equal(t, worker.Stats{InFlight: 1, Stuck: 1}, w.Stats())
		require.Contains(t, t.log.String(), "a handler is stuck")
		t.sleep(59 * time.Minute)
		require.Len(t, calls.times(), 1)
		close(free)
		t.sleep(time.Second)
		require.Equal(t, worker.Stats{Succeeded: 2}, w.Stats())
		require.NoError(t, stop())
	})
}

// After the handler's timeout, the ack timeout of its message is not renewed, so that another consumer may get the
// message.
func TestMessageOfAStuckHandlerComesBack(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		calls := newCalls()
		free := make(chan struct{})
		w, stop := t.start(func(ctx context.Context, msg pulsar.Message) error {
			if calls.note(msg) == 1 {
				<-free
			}
			return nil
		}, worker.WithTimeout(10*time.Second), worker.WithConcurrency(2))
		t.publish("tea")
		t.sleep(time.Hour)
		require.Len(t, calls.times(), 1)
		require.NotZero(t, t.consumer.Stats().Redelivered)
		require.Equal(t, worker.Stats{Failed: w.Stats().Failed, InFlight: 1, Stuck: 1}, w.Stats())
		close(free)
		t.sleep(time.Second)
		require.Equal(t, uint64(1), w.Stats().Succeeded)
		require.NoError(t, stop())
	}, redelivery.WithAckTimeout(3*time.Second))
}

// The handler of a batch returns an error after it was stuck. While the classifier reads the error, the messages come
// again. They succeed, and the batch is not halved.
func TestBatchThatWasStuckIsNotHalved(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		var got []string
		began, hangs := time.Now(), errors.New("hangs")
		w, stop := t.startBatch(worker.Batch{MaxMessages: 2}, func(_ context.Context, msgs []pulsar.Message) error {
			got = append(got, fmt.Sprint(time.Since(began), " ", len(msgs)))
			switch msgs[0].RedeliveryCount() {
			case 0:
				return errTest
			case 1:
				time.Sleep(20 * time.Second)
				return hangs
			}
			return nil
		}, worker.WithConcurrency(1), worker.WithTimeout(2*time.Second), worker.WithStuckLimit(5*time.Second), worker.WithClassifier(func(err error) error {
			if errors.Is(err, hangs) {
				time.Sleep(5 * time.Second) // the messages come again
			}
			return err
		}))
		t.publish("a")
		t.publish("b")
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []string{"0s 2", "1.01s 2", "21.14s 2"}, got)
		require.Empty(t, t.broker.Unacked())
		require.Zero(t, w.Stats().InFlight)
	}, redelivery.WithAckTimeout(5*time.Second), redelivery.WithNackRedeliveryDelay(1010*time.Millisecond))
}

// The dead letter is of one message of a batch. The other message is kept for a local retry, and does not come again
// before that.
func TestMessageWaitsForItsLocalRetryWhileADeadLetterTakesLong(t *testing.T) {
	virtually(t, withDeadLetters(3), func(t *rig) {
		t.broker.Send = func(string) error { time.Sleep(10 * time.Second); return nil }
		calls := newCalls()
		_, stop := t.startBatch(worker.Batch{}, func(_ context.Context, msgs []pulsar.Message) error {
			for _, msg := range msgs {
				calls.note(msg)
			}
			if len(msgs) == 2 {
				return worker.BatchError{0: worker.Permanent(errTest), 1: errTest}
			}
			return nil
		}, worker.WithConcurrency(2), worker.WithLocalRetries(1, backoff.Fixed(0)))
		t.publish("a")
		t.publish("b")
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []string{"a", "b", "b"}, calls.what)
		require.Empty(t, t.broker.Unacked())
	}, redelivery.WithAckTimeout(3*time.Second))
}
