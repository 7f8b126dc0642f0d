package worker_test

import (
	"context"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// The nack policy exits where the slot whose turn it is to try looks whether the Consumer is closed: another one tries.
func TestGoexitBeforeATry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, quiet := &rig{T: t, log: &safeBuffer{}}, slog.New(slog.DiscardHandler)
		var exit, works atomic.Bool
		var done atomic.Int32
		setup(r, withDeadLetters(50), redelivery.WithLogger(quiet), redelivery.WithAckTimeout(20*time.Second),
			redelivery.WithNackRedeliveryBackoff(backoff.Func(func(uint32) time.Duration {
				if exit.CompareAndSwap(true, false) {
					runtime.Goexit()
				}
				return time.Second
			})))
		w, err := worker.New(r.consumer, func(context.Context, pulsar.Message) error {
			if !works.Load() {
				return errTest
			}
			done.Add(1)
			return nil
		}, worker.WithLogger(quiet), worker.WithConcurrency(2), worker.WithPauseOnFailure(2, .5, backoff.Fixed(10*time.Second)))
		require.NoError(t, err)
		r.publishKeyed("a1", "b1", "c1")
		time.AfterFunc(time.Minute, func() {
			works.Store(true)
			exit.Store(true)
		})
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		_ = w.Run(ctx) // it may say that a message is left
		r.consumer.Close()
		require.False(t, exit.Load())
		require.GreaterOrEqual(t, done.Load(), int32(3))
	})
}
