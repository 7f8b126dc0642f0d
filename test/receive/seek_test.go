package receive

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// As with upstream, a seek also removes earlier messages from the application's own channel.
func TestSeekEmptiesTheMessageChannel(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	opts := b.Options(topic, pulsar.Exclusive)
	opts.MessageChannel = make(chan pulsar.ConsumerMessage, 10)
	c := b.Subscribe(opts)
	b.Send(topic, 5, false)
	require.Eventually(t, func() bool { return len(opts.MessageChannel) == 5 }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, c.SeekByTime(time.Now().Add(time.Minute)))
	testkit.ReceiveNothing(t, c, 500*time.Millisecond)
}

// The inner consumer gives up during its Seek, which then waits for ever. The Consumer's Seek returns, even without
// Close.
func TestSeekOfConsumerThatGivesUpReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := testkit.NewStandIn(t, pulsar.ConsumerOptions{Topic: "orders"})
		begun, answered := make(chan struct{}), make(chan struct{})
		s.OnSeek = func() { close(begun); <-answered }
		defer close(answered)
		go func() {
			<-begun
			s.Opts.Interceptors.OnConsumerClose(s, errors.New("max retry attempts reached"))
		}()
		var err error
		testkit.Returns(t, func() error { err = c.SeekByTime(time.Now()); return nil })
		require.ErrorIs(t, err, redelivery.ErrClosed)
	})
}

// A partition becomes inactive during a Seek, while Chan offers a message.
func TestSeekWhilePartitionBecomesInactiveReturns(t *testing.T) {
	for range 300 {
		c, s := testkit.NewStandIn(t, pulsar.ConsumerOptions{Type: pulsar.Failover})
		c.Chan()
		s.Publish(testkit.Entries(1, 2, 3)...)
		time.Sleep(time.Millisecond)
		var calls sync.WaitGroup
		calls.Go(func() { s.Opts.EventListener.BecameInactive(s, "t", -1) })
		calls.Go(func() { assert.NoError(t, c.SeekByTime(time.Now())) })
		calls.Wait()
		c.Close()
	}
}

func TestSeekForgetsWaitingMessages(t *testing.T) {
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
		inner.Deliver(1)
		c.Nack(testkit.Receive(t, c))
		go func() { _, _ = c.Receive(context.Background()) }() // the Seek must not wait for it
		synctest.Wait()
		require.NoError(t, c.Seek(pulsar.EarliestMessageID()))
		require.Zero(t, c.Stats().Waiting)
		time.Sleep(time.Hour)
		require.Empty(t, inner.Requests())
	})
}

// Upstream sends the request after the Seek, and the answer may come after the message was acknowledged.
func TestAnswerToRequestBeforeSeekIsDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := testkit.NewStandIn(t, pulsar.ConsumerOptions{Type: pulsar.Shared},
			redelivery.WithRedeliveryResolution(5*time.Second))
		s.Publish(testkit.Entries(1)...)
		require.NoError(t, c.NackWithDelay(testkit.Receive(t, c), 0)) // requested now, and sent at the next tick
		synctest.Wait()
		s.OnSeek = func() { go s.Redeliver(func(testkit.Position) bool { return true }) }
		require.NoError(t, c.SeekByTime(time.Time{}))
		msg := testkit.Receive(t, c)
		time.Sleep(4695 * time.Millisecond) // until after the tick, when the broker has sent the copy
		require.NoError(t, c.Ack(msg))
		time.Sleep(10 * time.Second) // the application is busy
		testkit.ReceiveNothing(t, c, 10*time.Second)
	})
}

// Right after the Seek, a handler nacks the second delivery of a message. The message comes again.
func TestNackOfDeliveryBeforeSeekIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, inner := testkit.SubscribeFake(t, pulsar.Exclusive)
		inner.Deliver(1)
		first := testkit.Receive(t, c)
		require.NoError(t, c.NackWithDelay(first, time.Second))
		second := testkit.Receive(t, c)
		require.NoError(t, c.Seek(pulsar.EarliestMessageID()))
		c.Nack(second)
		for range 5 {
			inner.Deliver(1)
			_, err := testkit.ReceiveWithin(c, time.Hour)
			if err == nil {
				return
			}
		}
		t.Error("the message is lost")
	})
}

// The Seek resets the subscription while copies of settled messages wait to be acknowledged again. These
// acknowledgements must not be sent.
func TestSeekEndsRepeatedAcks(t *testing.T) {
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
		for range 2 {
			for n := range int64(50) {
				inner.Deliver(n)
				msg := testkit.Receive(t, c)
				if c.RedeliveryCount(msg) > 0 {
					require.NoError(t, c.Ack(msg))
				} else {
					require.NoError(t, c.NackWithDelay(msg, 0))
				}
				synctest.Wait()
			}
		}
		acked := len(inner.Acks())
		inner.Gate = make(chan struct{})
		for n := range int64(50) {
			inner.Deliver(n)
		}
		go func() { _, _ = c.Receive(context.Background()) }()
		synctest.Wait()
		require.EqualValues(t, 50, c.Stats().Swallowed)
		require.NoError(t, c.Seek(pulsar.EarliestMessageID()))
		close(inner.Gate)
		synctest.Wait()
		require.Len(t, inner.Acks(), acked+1, "acknowledgements were repeated after the Seek")
	}, testkit.FromBroker)
}

// Time zero is in 1970, before all messages.
func TestSeekToTimeZeroRedeliversAll(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	c := b.Subscribe(b.Options(topic, pulsar.Exclusive))
	b.Send(topic, 3, false)
	for range 3 {
		testkit.Receive(t, c)
	}
	require.NoError(t, c.SeekByTime(time.Unix(0, 0)))
	for range 3 {
		require.NoError(t, c.Ack(testkit.Receive(t, c)))
	}
}

// Upstream would stop dispatching after a Seek to an id that is not of a message.
func TestSeekToLastMessageIDIsRefused(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	c := b.Subscribe(b.Options(topic, pulsar.Exclusive))
	b.Send(topic, 2, false)
	ids, err := c.GetLastMessageIDs()
	require.NoError(t, err)
	require.ErrorContains(t, c.Seek(ids[0]), "want the id of a message")
	require.NoError(t, c.Ack(testkit.Receive(t, c)))
	require.NoError(t, c.Ack(testkit.Receive(t, c)))
}
