package suite

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// Who waits in vain beside very many messages that are unacknowledged is told, once each time.
func TestBlockedIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const many = 45_000
		blocked := make(chan redelivery.Blocked, 10)
		c, inner := testkit.SubscribeFake(t, pulsar.Shared, redelivery.WithNackRedeliveryDelay(time.Hour), redelivery.WithMemoryLimit(0),
			redelivery.WithObserver(redelivery.Observer{Blocked: func(b redelivery.Blocked) { blocked <- b }}))
		var last pulsar.Message
		waits := func(d time.Duration) {
			ctx, cancel := context.WithTimeout(context.Background(), d)
			defer cancel()
			_, err := c.Receive(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			synctest.Wait()
		}
		for i := range int64(many) {
			inner.Deliver(i)
			last = testkit.Receive(t, c)
			c.Nack(last)
		}
		waits(time.Minute)
		require.Len(t, blocked, 1)
		b := <-blocked
		require.Equal(t, many, b.Unacknowledged)
		require.Same(t, c, b.Consumer)
		require.NoError(t, c.Ack(last))
		waits(10 * time.Second)
		inner.Deliver(many)
		c.Nack(testkit.Receive(t, c))
		waits(10 * time.Second)
		require.Len(t, blocked, 1, "it came to that again")
	})
}
