package worker_test

import (
	"context"
	"fmt"
	"runtime"
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

// An observer ends its goroutine when it is told that a pause of the Worker begins or ends: no message is forgotten.
func TestGoexitInPaused(t *testing.T) {
	for name, c := range map[string]struct {
		why     worker.PauseReason
		opts    pulsar.ConsumerOptions
		fails   int32 // calls
		of      []redelivery.Option
		options []worker.Option
	}{
		"memory limit": {worker.PauseMemoryLimit, orders, 0, []redelivery.Option{redelivery.WithMemoryLimit(1)}, []worker.Option{worker.WithKeyOrder()}},
		"outage": {worker.PauseOutage, exclusive(9), 2, []redelivery.Option{redelivery.WithAckTimeout(10 * time.Second), redelivery.WithNackRedeliveryDelay(time.Second)},
			[]worker.Option{worker.WithPauseOnFailure(1, 1, backoff.Fixed(time.Second))}},
		"outage, in key order": {worker.PauseOutage, exclusive(9), 2, []redelivery.Option{redelivery.WithAckTimeout(10 * time.Second), redelivery.WithNackRedeliveryDelay(time.Second)},
			[]worker.Option{worker.WithPauseOnFailure(1, 1, backoff.Fixed(time.Second)), worker.WithKeyOrder()}},
	} {
		for _, begins := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, begins: %t", name, begins), func(t *testing.T) {
				virtually(t, c.opts, func(t *rig) {
					var told, calls atomic.Int32
					exit := worker.WithObserver(worker.Observer{Paused: func(p worker.Paused) {
						if p.Why == c.why && p.Paused == begins && told.Add(1) == 1 {
							runtime.Goexit()
						}
					}})
					_, stop := t.start(func(context.Context, pulsar.Message) error {
						time.Sleep(time.Second)
						if calls.Add(1) <= c.fails {
							return errTest
						}
						return nil
					}, append(c.options, worker.WithConcurrency(2), exit)...)
					t.publishKeyed("a1", "a2", "a3", "a4", "a5", "b1", "c1")
					t.sleep(time.Hour)
					assert.Empty(t, t.broker.Unacked())
					assert.NotZero(t, told.Load())
					require.NoError(t, stop())
				}, c.of...)
			})
		}
	}
}

// The Consumer's observer ends its goroutine while a slot collects a batch: what the batch had is handled.
func TestGoexitWhileABatchIsCollected(t *testing.T) {
	var delivered atomic.Int32
	virtually(t, orders, func(t *rig) {
		_, stop := t.startBatch(worker.Batch{MaxMessages: 10, MaxWait: time.Second}, func(context.Context, []pulsar.Message) error { return nil },
			worker.WithConcurrency(2))
		t.publish("a", "b", "c", "d")
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Empty(t, t.broker.Unacked())
	}, redelivery.WithAckTimeout(10*time.Second), redelivery.WithObserver(redelivery.Observer{Delivered: func(redelivery.Delivered) {
		if delivered.Add(1) == 3 {
			runtime.Goexit()
		}
	}}))
}
