package receive

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// After Wrap, the Consumer calls Receive of the inner consumer once a second, to see whether the inner consumer is
// closed. Here this call returns a message.
func TestMessagesThatComeWithThePollAreAllDelivered(t *testing.T) {
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
		const rounds, burst = 200, 5
		go func() {
			for n := range int64(rounds) {
				time.Sleep(time.Second)
				for i := range int64(burst) {
					inner.Deliver(n*burst + i)
				}
			}
		}()
		for n := range rounds * burst {
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			msg, err := c.Receive(ctx)
			cancel()
			require.NoError(t, err, "message %d is missing", n)
			require.NoError(t, c.Ack(msg))
			time.Sleep(50 * time.Millisecond) // until more messages of the burst have come
		}
	})
}

func TestRequestIsNotRepeatedWhilePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, inner := testkit.SubscribeFake(t, pulsar.Shared, redelivery.WithNackRedeliveryDelay(time.Second),
			redelivery.WithRedeliveryFrom(redelivery.FromBroker))
		inner.Deliver(1)
		c.Nack(testkit.Receive(t, c))
		received := make(chan pulsar.Message, 1)
		go func() {
			msg, _ := c.Receive(context.Background())
			received <- msg
		}()
		synctest.Wait()
		c.Pause() // while Receive waits
		time.Sleep(10 * time.Minute)
		require.Len(t, inner.Requests(), 1)
		c.Resume()
		inner.Deliver(1)
		require.EqualValues(t, 1, c.RedeliveryCount(<-received))
		c.Close()
	})
}
