package suite

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

func TestChanHandsOutTheConsumer(t *testing.T) {
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
		inner.Deliver(1)
		cm := <-c.Chan()
		require.Same(t, c, cm.Consumer)
		cm.Nack(cm)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, inner.Requests(), 1)
	}, testkit.FromBroker)
}

func TestReceiveHonoursItsContext(t *testing.T) {
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, _ *testkit.Fake, _ *bytes.Buffer) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		go func() { _, _ = c.Receive(context.Background()) }() // has the turn
		synctest.Wait()
		_, err := c.Receive(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestSeekForgets(t *testing.T) {
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
		inner.Deliver(1)
		c.Nack(testkit.Receive(t, c))
		go func() { _, _ = c.Receive(context.Background()) }() // gives way
		synctest.Wait()
		require.NoError(t, c.Seek(pulsar.EarliestMessageID()))
		require.Zero(t, c.Stats().Waiting)
		time.Sleep(time.Hour)
		require.Empty(t, inner.Requests())
	})
}
