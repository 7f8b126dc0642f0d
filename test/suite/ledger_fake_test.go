package suite

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// A Receive that is under way gives way to a Seek, and still heeds its context.
func TestReceiveHeedsItsContextDuringASeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := testkit.NewStandIn(t, pulsar.ConsumerOptions{})
		over := make(chan struct{})
		end := sync.OnceFunc(func() { close(over) })
		defer end()
		s.OnSeek = func() { <-over }
		received := make(chan error, 2)
		ctx, cancel := context.WithCancel(context.Background())
		receiving := func() { _, err := c.Receive(ctx); received <- err }
		go receiving()
		synctest.Wait()
		sought := make(chan error, 1)
		go func() { sought <- c.SeekByTime(time.Now()) }()
		synctest.Wait()
		go receiving()
		synctest.Wait()
		cancel()
		synctest.Wait()
		require.Len(t, received, 2, "Receive outlives its context")
		require.ErrorIs(t, <-received, context.Canceled)
		require.ErrorIs(t, <-received, context.Canceled)
		end()
		require.NoError(t, <-sought)
	})
}
