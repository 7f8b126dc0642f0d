package ack

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

// The broker counts a whole batch as unacknowledged until its last message is acknowledged. If one message waits in
// each of 50 batches of 1,000, the broker counts 50,000.
func TestConsumerBlockedByWaitingBatchesIsReported(t *testing.T) {
	t.Parallel()
	for name, index := range map[string]bool{"by entry": false, "with batch-index acks": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const batches, each = 50, 1000
				blocked := make(chan redelivery.Blocked, 10)
				c, s := testkit.NewStandIn(t, pulsar.ConsumerOptions{Type: pulsar.Shared,
					EnableBatchIndexAcknowledgment: index},
					redelivery.WithNackRedeliveryDelay(time.Hour),
					redelivery.WithObserver(redelivery.Observer{Blocked: func(b redelivery.Blocked) { blocked <- b }}))
				defer c.Close()
				for entry := range int64(batches) {
					s.Publish(testkit.EntryBatch(entry, each, 10)...)
					for i := range each {
						if msg := testkit.Receive(t, c); i == 7 {
							c.Nack(msg)
						} else {
							require.NoError(t, c.Ack(msg))
						}
						if i%20 == 19 {
							s.Truncate() // so that no ack searches the whole batch
						}
					}
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				_, err := c.Receive(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				synctest.Wait()
				if index {
					require.Empty(t, blocked)
					require.False(t, c.Stats().Blocked)
					return
				}
				require.Len(t, blocked, 1)
				require.Equal(t, batches*each, (<-blocked).Unacknowledged)
				require.True(t, c.Stats().Blocked)
				s.Publish(testkit.EntryBatch(batches, 1, 10)...)
				require.NoError(t, c.Ack(testkit.Receive(t, c)))
				require.False(t, c.Stats().Blocked)
			})
		})
	}
}

// Receive waits and gets nothing while very many messages are unacknowledged. If that happens again, the Consumer
// reports it again.
func TestBlockedConsumerIsReportedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const many = 45_000
		blocked := make(chan redelivery.Blocked, 10)
		c, inner := testkit.SubscribeFake(t, pulsar.Shared, redelivery.WithNackRedeliveryDelay(time.Hour),
			redelivery.WithMemoryLimit(0),
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
		require.Len(t, blocked, 1, "the second time was not reported")
	})
}
