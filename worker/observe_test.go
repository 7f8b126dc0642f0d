package worker_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// The end of Run ends all pauses.
func TestObserversSeeEachPauseBeginAndEnd(t *testing.T) {
	var mu sync.Mutex
	var told []string
	observer := worker.WithObserver(worker.Observer{Paused: func(p worker.Paused) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, fmt.Sprint(p.Why, " ", p.Paused))
	}})
	for name, c := range map[string]struct {
		up      time.Duration // from this time on handlers succeed
		options []worker.Option
		want    []string
	}{
		"pause":                {0, nil, []string{"asked true", "asked false"}},
		"pause until the end":  {0, nil, []string{"asked true", "asked false"}},
		"outage":               {10 * time.Second, []worker.Option{worker.WithPauseOnFailure(1, 1, backoff.Fixed(time.Second))}, []string{"outage true", "outage false"}},
		"outage until the end": {time.Hour, []worker.Option{worker.WithPauseOnFailure(1, 1, backoff.Fixed(time.Second))}, []string{"outage true", "outage false"}},
		"memory limit":         {0, []worker.Option{worker.WithKeyOrder()}, []string{"memory_limit true", "memory_limit false"}},
		"memory limit until the end": {time.Hour, []worker.Option{worker.WithKeyOrder()},
			[]string{"memory_limit true", "memory_limit false"}},
	} {
		t.Run(name, func(t *testing.T) {
			told = nil
			virtually(t, orders, func(t *rig) {
				began := time.Now()
				w, stop := t.start(func(context.Context, pulsar.Message) error {
					if time.Sleep(time.Second); time.Since(began) < c.up {
						return errTest
					}
					return nil
				}, append(c.options, observer, worker.WithConcurrency(2))...)
				t.publishKeyed("a1", "a2", "a3", "a4")
				t.sleep(30 * time.Second)
				if strings.HasPrefix(name, "pause") {
					w.Pause()
				}
				if name == "pause" {
					w.Resume()
				}
				require.NoError(t, stop())
				w.Pause() // Run has returned: no effect
				w.Resume()
				require.False(t, w.Stats().Paused)
				require.Equal(t, c.want, told)
			}, redelivery.WithNackRedeliveryDelay(time.Second), redelivery.WithMemoryLimit(1))
		})
	}
}

// Observers also see the calls for messages that the Worker itself tries again.
func TestObserversSeeEachCallOfTheHandlerAndItsResult(t *testing.T) {
	var told []string
	handlers := worker.WithObserver(worker.Observer{
		Handling: func(e worker.Handling) {
			told = append(told, fmt.Sprintf("%s %d", e.Message.Payload(), e.Message.RedeliveryCount()))
		},
		Handled: func(e worker.Handled) {
			told = append(told, fmt.Sprintf("%s %v after %v: %v", e.Message.Payload(), e.Outcome, e.Duration, e.Err))
		},
	})
	settled := redelivery.WithObserver(redelivery.Observer{Settled: func(e redelivery.Settled) {
		told = append(told, fmt.Sprintf("%s is %v %v", e.Message.Payload(), e.Outcome, e.Reason))
	}})
	virtually(t, withDeadLetters(2), func(t *rig) {
		t.publishKeyed("a1")
		_, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			time.Sleep(time.Second)
			if len(told) == 1 {
				return worker.Snooze(time.Second)
			}
			return errTest
		}, handlers, worker.WithKeyOrder(), worker.WithConcurrency(1))
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []string{"a1 0", "a1 snoozed after 1s: snoozed for 1s", "a1 0", "a1 nacked after 1s: no luck", "a1 1", "a1 nacked after 1s: no luck", "a1 is dead_lettered max_deliveries"}, told)
	}, settled)
}

// For a batch, the observers are called for each message.
func TestObserversAreCalledInTheOrderOfTheirOptions(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		t.publish("a")
		t.publish("b")
		var told []string
		observer := func(name string) worker.Option {
			note := func(what string) { told = append(told, name+" "+what) }
			return worker.WithObserver(worker.Observer{
				Handling: func(e worker.Handling) { note("handling " + string(e.Message.Payload())) },
				Handled:  func(e worker.Handled) { note("handled " + string(e.Message.Payload()) + " " + string(e.Outcome)) },
				Paused:   func(e worker.Paused) { note(string(e.Why)) },
			})
		}
		w, stop := t.startBatch(worker.Batch{MaxMessages: 2}, func(context.Context, []pulsar.Message) error { return nil },
			observer("1st"), worker.WithObserver(worker.Observer{}), observer("2nd"), worker.WithConcurrency(1))
		t.sleep(time.Minute)
		w.Pause()
		require.NoError(t, stop())
		require.Equal(t, []string{"1st handling a", "2nd handling a", "1st handling b", "2nd handling b",
			"1st handled a acked", "2nd handled a acked", "1st handled b acked", "2nd handled b acked",
			"1st asked", "2nd asked", "1st asked", "2nd asked"}, told)
		require.Equal(t, worker.Stats{Succeeded: 2}, w.Stats())
		require.Zero(t, t.consumer.Stats().Failed)
	})
}

// Between these events, Stats has the current state.
func TestObserversSeeRunBeginAndReturn(t *testing.T) {
	virtually(t, orders, func(r *rig) {
		var told []bool
		var inFlight int
		observe := worker.WithObserver(worker.Observer{Running: func(e worker.Running) {
			told = append(told, e.Running)
			inFlight = e.Worker.Stats().InFlight
			assert.Same(r, r.consumer, e.Consumer)
			assert.Equal(r, "billing", e.Subscription)
		}})
		_, stop := r.start(func(context.Context, pulsar.Message) error { return nil }, observe)
		r.publish("tea")
		r.sleep(time.Second)
		require.Equal(r, []bool{true}, told)
		require.NoError(r, stop())
		require.Equal(r, []bool{true, false}, told)
		require.Zero(r, inFlight)
	})
}
