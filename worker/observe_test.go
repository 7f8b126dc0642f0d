package worker_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// Observers are told when a Worker takes no more messages, why, and when that is over; the end of Run ends each.
func TestObserversAreToldOfPauses(t *testing.T) {
	var mu sync.Mutex
	var told []string
	observer := redelivery.WithObserver(redelivery.Observer{Paused: func(p redelivery.Paused) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, fmt.Sprint(p.Why, " ", p.Paused))
	}})
	for name, c := range map[string]struct {
		up      time.Duration // when handlers begin to succeed
		options []worker.Option
		want    []string
	}{
		"pause":                {0, nil, []string{"asked true", "asked false"}},
		"pause until the end":  {0, nil, []string{"asked true", "asked false"}},
		"outage":               {10 * time.Second, []worker.Option{worker.WithPauseOnFailure(1, 1, backoff.Fixed(time.Second))}, []string{"outage true", "outage false"}},
		"outage until the end": {time.Hour, []worker.Option{worker.WithPauseOnFailure(1, 1, backoff.Fixed(time.Second))}, []string{"outage true", "outage false"}},
		"memory limit":         {0, []worker.Option{worker.WithKeyOrder(), worker.WithMemoryLimit(1)}, []string{"memory_limit true", "memory_limit false"}},
		"memory limit until the end": {time.Hour, []worker.Option{worker.WithKeyOrder(), worker.WithMemoryLimit(1)},
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
				}, append(c.options, worker.WithConcurrency(2))...)
				t.publishKeyed("a1", "a2")
				t.sleep(30 * time.Second)
				if strings.HasPrefix(name, "pause") {
					w.Pause()
				}
				if name == "pause" {
					w.Resume()
				}
				require.NoError(t, stop())
				w.Pause() // too late
				w.Resume()
				require.False(t, w.Stats().Paused)
				require.Equal(t, c.want, told)
			}, observer, redelivery.WithNackRedeliveryDelay(time.Second))
		})
	}
}

// What the handler was given and what became of it is told too, by key and in batches.
func TestObserversAreToldOfHandlers(t *testing.T) {
	var told []string
	observer := redelivery.WithObserver(redelivery.Observer{
		Handling: func(e redelivery.Handling) {
			told = append(told, fmt.Sprintf("%s %d", e.Message.Payload(), e.Message.RedeliveryCount()))
		},
		Handled: func(e redelivery.Handled) {
			told = append(told, fmt.Sprintf("%s %v after %v: %v", e.Message.Payload(), e.Outcome, e.Duration, e.Err))
		},
		Settled: func(e redelivery.Settled) {
			told = append(told, fmt.Sprintf("%s is %v %v", e.Message.Payload(), e.Outcome, e.Reason))
		},
	})
	virtually(t, withDeadLetters(2), func(t *rig) {
		t.publishKeyed("a1")
		_, stop := t.start(func(context.Context, pulsar.Message) error { time.Sleep(time.Second); return errTest },
			worker.WithKeyOrder(), worker.WithConcurrency(1))
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []string{"a1 0", "a1 nacked after 1s: no luck", "a1 1", "a1 nacked after 1s: no luck", "a1 is dead_lettered max_deliveries"}, told)
	}, observer)
}
