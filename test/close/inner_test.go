package close

import (
	"bytes"
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

func TestCloseRedeliversNothing(t *testing.T) {
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
		inner.Deliver(1)
		inner.Deliver(2)
		c.Nack(testkit.Receive(t, c))
		msg := testkit.Receive(t, c)
		received := make(chan error, 2)
		go func() { _, err := c.Receive(context.Background()); received <- err }()
		go func() { _, err := c.Receive(context.Background()); received <- err }()
		synctest.Wait()
		c.Close()
		require.ErrorIs(t, <-received, testkit.ErrFakeClosed)
		require.ErrorIs(t, <-received, testkit.ErrFakeClosed)
		_, err := c.Receive(context.Background())
		require.ErrorIs(t, err, testkit.ErrFakeClosed)
		c.Close()
		c.Nack(msg)
		time.Sleep(time.Hour)
		require.Empty(t, inner.Requests())
		inner.Closed = make(chan struct{})
	})
}

// slowToClose is a fake whose Close takes a second.
type slowToClose struct{ *testkit.Fake }

func (s slowToClose) Close() {
	time.Sleep(time.Second)
	s.Fake.Close()
}

// Upstream's Seek hangs while another goroutine receives, and so does Close of a zero-queue consumer. So the Consumer's
// Receive returns as soon as Close of the Consumer begins.
func TestInnerConsumerClosesWithoutReceivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := testkit.NewFake()
		c, err := redelivery.Wrap(slowToClose{inner}, testkit.LogTo(io.Discard))
		require.NoError(t, err)
		received := make(chan error)
		go func() { _, err := c.Receive(context.Background()); received <- err }()
		go func() { _, err := c.Receive(context.Background()); received <- err }()
		synctest.Wait()
		go c.Close()
		time.Sleep(900 * time.Millisecond)
		require.Zero(t, inner.Probes.Load())
		require.ErrorIs(t, <-received, testkit.ErrFakeClosed)
		require.ErrorIs(t, <-received, testkit.ErrFakeClosed)
		require.Error(t, c.Seek(pulsar.EarliestMessageID()))
	})
}

func TestReceiveReturnsWhenInnerConsumerIsGone(t *testing.T) {
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
		inner.Close()
		for range 2 {
			_, err := c.Receive(context.Background())
			require.ErrorIs(t, err, testkit.ErrFakeClosed)
		}
		inner.Closed = make(chan struct{})
	})
}

// A probe calls Receive of the inner consumer, which may return a message whose topic the Consumer does not know.
func TestHealthyInnerConsumerIsNotProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := testkit.NewFake()
		c, opts := testkit.SubscribeFakeWith(t, inner, pulsar.ConsumerOptions{})
		received := make(chan error)
		go func() { _, err := c.Receive(context.Background()); received <- err }()
		time.Sleep(time.Hour)
		require.Zero(t, inner.Probes.Load())
		close(inner.Closed)
		opts.Interceptors.OnConsumerClose(inner, nil)
		require.ErrorIs(t, <-received, testkit.ErrFakeClosed)
		inner.Closed = make(chan struct{})
		c.Close()
	})
}
