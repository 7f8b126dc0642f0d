package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/virtual"
)

// Pause is called when the slot has waited for the try, and before it looks at the next messages.
func TestWorkerPausedAtTheMomentOfATryGivesItsMessagesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := &virtual.Broker{}
		c, err := redelivery.Subscribe(broker, pulsar.ConsumerOptions{Topic: "orders", SubscriptionName: "billing", Type: pulsar.Shared})
		require.NoError(t, err)
		defer c.Close()
		w, err := New(c, func(context.Context, pulsar.Message) error { return nil }, WithConcurrency(1),
			WithPauseOnFailure(1, 1, backoff.Fixed(time.Second)))
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		r := newRun(w, ctx)
		defer r.end()
		w.Pause()
		picked := make(chan error, 1)
		go func() {
			_, _, err := r.outage.pick()
			picked <- err
		}()
		synctest.Wait()
		require.Zero(t, broker.Consumers())
		stop()
		require.ErrorIs(t, <-picked, context.Canceled)
	})
}
