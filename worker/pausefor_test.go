package worker_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/virtual"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/worker"
)

func TestPauseForTakesNoMessagesAndCountsNoAttempt(t *testing.T) {
	virtually(t, withDeadLetters(1), func(t *rig) {
		calls := newCalls()
		var pauses []string
		w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			if calls.note(msg) == 1 {
				return fmt.Errorf("order 7: %w", worker.PauseFor(30*time.Second, errTest))
			}
			require.Zero(t, msg.RedeliveryCount())
			return nil
		}, worker.WithConcurrency(1), worker.WithObserver(worker.Observer{Paused: func(e worker.Paused) {
			pauses = append(pauses, fmt.Sprint(e.Why, e.Paused))
		}}))
		t.publish("a", "b")
		t.sleep(29 * time.Second)
		t.publish("c")
		require.True(t, w.Stats().Paused)
		require.Len(t, calls.times(), 1)
		t.sleep(2 * time.Second)
		require.False(t, w.Stats().Paused)
		require.NoError(t, stop())
		require.ElementsMatch(t, []string{"a", "a", "b", "c"}, calls.what)
		require.Equal(t, []time.Duration{0, 30 * time.Second, 30 * time.Second, 30 * time.Second}, calls.times())
		require.Equal(t, worker.Stats{Succeeded: 3, Snoozed: 1}, w.Stats())
		require.Equal(t, []string{"handlertrue", "handlerfalse"}, pauses)
		require.Len(t, t.linesWith("a handler asked for a pause"), 1)
		require.Contains(t, t.log.String(), `for=30s error="no luck"`)
		require.Empty(t, t.letters())
	})
}

func TestLongestPauseForOfSeveralHandlersCounts(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		calls := newCalls()
		delays := map[string]time.Duration{"short": 10 * time.Second, "long": time.Minute}
		var once atomic.Int32
		_, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			calls.note(msg)
			if d, ok := delays[string(msg.Payload())]; ok && once.Add(1) <= 2 {
				time.Sleep(time.Second) // until both messages are taken
				return worker.PauseFor(d, errTest)
			}
			return nil
		}, worker.WithConcurrency(2))
		t.publish("long", "short")
		t.sleep(30 * time.Second)
		t.publish("late")
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Len(t, calls.times(), 5)
		for _, at := range calls.times()[2:] {
			require.Equal(t, 61*time.Second, at)
		}
	})
}

func TestDrainDoesNotWaitForTheEndOfPauseFor(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		w, stop := t.start(func(context.Context, pulsar.Message) error { return worker.PauseFor(time.Hour, errTest) })
		t.publish("a")
		t.sleep(time.Second)
		began := time.Now()
		require.NoError(t, stop())
		require.Zero(t, time.Since(began))
		require.False(t, w.Stats().Paused)
	})
}

func TestPauseForDoesNotKeepTheWorkerInMemoryAfterRun(t *testing.T) {
	t.Parallel()
	broker := &virtual.Broker{}
	c, err := redelivery.Subscribe(broker, orders, redelivery.WithLogger(quiet))
	require.NoError(t, err)
	defer c.Close()
	ctx, stop := context.WithCancel(t.Context())
	w, err := worker.New(c, func(context.Context, pulsar.Message) error { return worker.PauseFor(time.Hour, errTest) },
		worker.WithLogger(quiet), worker.WithObserver(worker.Observer{Paused: func(worker.Paused) { stop() }}))
	require.NoError(t, err)
	broker.Publish("orders", &pulsar.ProducerMessage{})
	require.NoError(t, w.Run(ctx))
	kept := weak.Make(w)
	require.Eventually(t, func() bool {
		runtime.GC()
		return kept.Value() == nil
	}, waittest.Limit, 10*time.Millisecond)
}

func TestPauseForDoesNotEndAPauseByPause(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		calls := newCalls()
		w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			if calls.note(msg) == 1 {
				time.Sleep(time.Second)
				return worker.PauseFor(10*time.Second, errTest)
			}
			return nil
		})
		t.publish("a")
		t.sleep(500 * time.Millisecond)
		w.Pause()
		t.sleep(time.Minute)
		require.Len(t, calls.times(), 1)
		w.Resume()
		t.sleep(time.Second)
		require.Len(t, calls.times(), 2)
		require.NoError(t, stop())
	})
}

func TestErrorOfPauseForIsASnooze(t *testing.T) {
	err := fmt.Errorf("order 7: %w", worker.PauseFor(-1, nil))
	require.True(t, worker.IsSnooze(err))
	require.EqualError(t, err, "order 7: paused for 0s: no reason given")
}

// Giving messages back makes the Consumer subscribe again. So one SUBSCRIBE shows that none was given back.
func TestPauseForLeavesPrefetchedMessagesWithTheConsumer(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]worker.Option{
		"alone":                   nil,
		"with a pause on failure": {worker.WithPauseOnFailure(100, 1, backoff.Fixed(time.Second))},
	} {
		t.Run(name, func(t *testing.T) {
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
			publishBatches(t, s, 3, 1)
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			w, err := worker.New(c, func(context.Context, pulsar.Message) error {
				switch handled.Add(1) {
				case 1:
					return worker.PauseFor(300*time.Millisecond, errTest)
				case 4:
					stop()
				}
				return nil
			}, append(options, worker.WithConcurrency(1), worker.WithLogger(quiet))...)
			require.NoError(t, err)
			require.NoError(t, w.Run(ctx))
			require.EqualValues(t, 4, handled.Load())
			require.EqualValues(t, 1, subscribed.Load())
		})
	}
}
