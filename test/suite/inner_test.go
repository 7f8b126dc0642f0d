package suite

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
)

func TestCloseRedeliversNothing(t *testing.T) {
	wrapped(t, func(t *testing.T, c *redelivery.Consumer, inner *fake, _ *bytes.Buffer) {
		inner.deliver(1)
		inner.deliver(2)
		c.Nack(receive(t, c))
		msg := receive(t, c)
		received := make(chan error, 2)
		go func() { _, err := c.Receive(context.Background()); received <- err }()
		go func() { _, err := c.Receive(context.Background()); received <- err }()
		synctest.Wait()
		c.Close()
		require.ErrorIs(t, <-received, errFakeClosed)
		require.ErrorIs(t, <-received, errFakeClosed)
		_, err := c.Receive(context.Background())
		require.ErrorIs(t, err, errFakeClosed)
		c.Close()
		c.Nack(msg)
		time.Sleep(time.Hour)
		require.Empty(t, inner.requests())
		inner.closed = make(chan struct{})
	})
}

// slowToClose takes a second to close.
type slowToClose struct{ *fake }

func (s slowToClose) Close() {
	time.Sleep(time.Second)
	s.fake.Close()
}

// Upstream's Seek hangs when somebody else takes messages, and so does a zero-queue consumer's Close.
func TestNobodyReceivesWhileTheInnerConsumerCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFake()
		c, err := redelivery.Wrap(slowToClose{inner}, logTo(io.Discard))
		require.NoError(t, err)
		received := make(chan error)
		go func() { _, err := c.Receive(context.Background()); received <- err }()
		go func() { _, err := c.Receive(context.Background()); received <- err }()
		synctest.Wait()
		go c.Close()
		time.Sleep(ms(900))
		require.Zero(t, inner.probes.Load())
		require.ErrorIs(t, <-received, errFakeClosed)
		require.ErrorIs(t, <-received, errFakeClosed)
		require.Error(t, c.Seek(pulsar.EarliestMessageID()))
	})
}

func TestReceiveReturnsWhenTheInnerConsumerIsGone(t *testing.T) {
	wrapped(t, func(t *testing.T, c *redelivery.Consumer, inner *fake, _ *bytes.Buffer) {
		inner.Close()
		for range 2 {
			_, err := c.Receive(context.Background())
			require.ErrorIs(t, err, errFakeClosed)
		}
		inner.closed = make(chan struct{})
	})
}

// The probe may take a message, and then it is not known whose.
func TestAHealthyPreparedConsumerIsNotProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFake()
		c, opts := subscribeFake(t, inner, pulsar.ConsumerOptions{})
		received := make(chan error)
		go func() { _, err := c.Receive(context.Background()); received <- err }()
		time.Sleep(time.Hour)
		require.Zero(t, inner.probes.Load())
		close(inner.closed)
		opts.Interceptors.OnConsumerClose(inner, nil)
		require.ErrorIs(t, <-received, errFakeClosed)
		inner.closed = make(chan struct{})
		c.Close()
	})
}
