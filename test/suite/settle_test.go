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

// Copies of settled messages that are still to be acknowledged again when the subscription is reset are to be handed
// out.
func TestSeekEndsChores(t *testing.T) {
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
		require.Len(t, inner.Acks(), acked+1, "one was under way")
	}, testkit.FromBroker)
}

// All that is retained is from after 1970.
func TestSeekToTheBeginningOfTime(t *testing.T) {
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

// Upstream stops dispatch for an id that is not a message's.
func TestSeekToTheLastMessageID(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	c := b.Subscribe(b.Options(topic, pulsar.Exclusive))
	b.Send(topic, 2, false)
	ids, err := c.GetLastMessageIDs()
	require.NoError(t, err)
	require.ErrorContains(t, c.Seek(ids[0]), "want a message's")
	require.NoError(t, c.Ack(testkit.Receive(t, c)))
	require.NoError(t, c.Ack(testkit.Receive(t, c)))
}

func TestUnsubscribeWithoutQueueWhileReceiving(t *testing.T) {
	if testkit.InOwnProcess(t) {
		return
	}
	b := testkit.NewBroker(t)
	opts := b.Options(b.NewTopic(0), pulsar.Shared)
	opts.EnableZeroQueueConsumer = true
	c := b.Subscribe(opts)
	go func() { _, _ = c.Receive(t.Context()) }()
	time.Sleep(100 * time.Millisecond)
	done := make(chan error, 1)
	go func() { done <- c.Unsubscribe() }()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(5 * time.Second):
		t.Error("Unsubscribe hangs")
	}
}
