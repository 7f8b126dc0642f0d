package suite

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// Of two calls that settle a message one waits for the other, and tries by itself if that fails.
func TestAnAckWaitsForAnotherOfTheSameMessage(t *testing.T) {
	for name, ack := range map[string]func(*redelivery.Consumer, pulsar.Message) error{
		"Ack":       func(c *redelivery.Consumer, m pulsar.Message) error { return c.Ack(m) },
		"AckIDList": func(c *redelivery.Consumer, m pulsar.Message) error { return c.AckIDList([]pulsar.MessageID{m.ID()}) },
	} {
		t.Run(name, func(t *testing.T) {
			testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
				inner.Gate = make(chan struct{})
				inner.Deliver(1)
				msg := testkit.Receive(t, c)
				first, second := make(chan error, 1), make(chan error, 1)
				go func() { first <- c.Ack(msg) }()
				synctest.Wait()
				go func() { second <- ack(c, msg) }()
				synctest.Wait()
				inner.FailAcks(errors.New("no"))
				inner.Gate <- struct{}{}
				require.ErrorContains(t, <-first, "no")
				synctest.Wait()
				require.Empty(t, second, "it returned before it tried")
				inner.FailAcks(nil)
				inner.Gate <- struct{}{}
				require.NoError(t, <-second)
				require.Equal(t, []pulsar.MessageID{msg.ID()}, inner.Acks())
			})
		})
	}
}

// The application's policies and interceptors may panic.
func TestAPanicEndsSettling(t *testing.T) {
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
		inner.Deliver(1)
		msg := testkit.Receive(t, c)
		inner.Panics = true
		require.Panics(t, func() { _ = c.Ack(msg) })
		inner.Panics = false
		require.NoError(t, c.Ack(msg))
		require.Len(t, inner.Acks(), 1)
	})
}

// Nothing is redelivered that was acknowledged cumulatively, nacked afterwards or not.
func TestANackAfterACumulativeAckIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, inner := testkit.SubscribeFake(t, pulsar.Exclusive, redelivery.WithNackRedeliveryDelay(10*time.Millisecond))
		var msgs []pulsar.Message
		for n := range int64(3) {
			inner.Deliver(n)
			msgs = append(msgs, testkit.Receive(t, c))
		}
		require.NoError(t, c.AckCumulative(msgs[1]))
		c.Nack(msgs[0])
		c.NackID(msgs[1].ID())
		require.Zero(t, c.Stats().Waiting)
		c.Nack(msgs[2])
		require.Equal(t, 1, c.Stats().Waiting)
	})
}

func TestInProgressBeforeTheClockStarts(t *testing.T) {
	var started chan struct{}
	policy := backoff.Func(func(uint32) time.Duration { <-started; return 0 })
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
		started = make(chan struct{})
		inner.Deliver(1)
		cm := <-c.Chan()
		for range 3 {
			require.NoError(t, c.InProgress(cm))
		}
		close(started)
		synctest.Wait()
		require.NoError(t, c.InProgress(cm))
	}, redelivery.WithAckTimeout(time.Minute), redelivery.WithAckTimeoutRedeliveryBackoff(policy))
}

func TestReconsumeOfAMessageThatIsBeingPublished(t *testing.T) {
	t.Parallel()
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
	c := b.Subscribe(b.RetryOptions("t", 5))
	b.Send("t", 1, false)
	b.InProcess.Inject("SEND", "t-"+testkit.Subscription+"-RETRY", 1, pulsartest.Drop)
	msg := testkit.Receive(t, c)
	first := make(chan error, 1)
	go func() { first <- c.ReconsumeLaterNext(context.Background(), msg) }()
	require.Eventually(t, func() bool { return len(b.InProcess.Topics()) > 1 }, 5*time.Second, 10*time.Millisecond)
	time.Sleep(200 * time.Millisecond)
	require.ErrorIs(t, c.ReconsumeLaterNext(context.Background(), msg), redelivery.ErrNotInFlight, "it is being published")
	c.Close()
	require.ErrorIs(t, waittest.Next(t, first), redelivery.ErrClosed)
}

// The copy that was asked for comes while an Ack is under way that fails.
func TestCopyThatCameWhileSettlingFailedIsRequestedAtOnce(t *testing.T) {
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
		inner.Deliver(1)
		msg := testkit.Receive(t, c)
		require.NoError(t, c.NackWithDelay(msg, time.Millisecond))
		time.Sleep(2 * time.Millisecond)
		require.Len(t, inner.Requests(), 1)
		inner.Gate = make(chan struct{})
		inner.FailAcks(errors.New("no"))
		acked := make(chan error, 1)
		go func() { acked <- c.Ack(msg) }()
		synctest.Wait()
		inner.Deliver(1)
		start, again := time.Now(), make(chan pulsar.Message, 1)
		go func() { again <- testkit.Receive(t, c) }()
		synctest.Wait()
		inner.Gate <- struct{}{}
		require.Error(t, <-acked)
		synctest.Wait()
		require.Len(t, inner.Requests(), 2)
		inner.Deliver(1)
		require.EqualValues(t, 1, c.RedeliveryCount(<-again))
		require.Zero(t, time.Since(start))
		require.Zero(t, c.Stats().Waiting)
		time.Sleep(time.Hour)
		require.Len(t, inner.Requests(), 2)
	}, testkit.FromBroker)
}

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

// Acknowledging each message cumulatively costs what acknowledging one does, not more with all that was settled before.
func BenchmarkAckCumulative(b *testing.B) {
	c, inner := testkit.SubscribeFake(b, pulsar.Exclusive)
	n := int64(0)
	for b.Loop() {
		n++
		inner.Deliver(n)
		msg, err := c.Receive(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		if err := c.AckCumulative(msg); err != nil {
			b.Fatal(err)
		}
	}
}
