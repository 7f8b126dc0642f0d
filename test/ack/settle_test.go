package ack

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// Two acks of one message run at the same time. The first is refused, and during it the message is nacked. Chan then
// offers the message, and the second ack settles it.
func TestSecondAckAfterRefusedFirstSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, inner := testkit.SubscribeFake(t, pulsar.Exclusive, redelivery.WithNackRedeliveryDelay(time.Second))
		inner.Deliver(1)
		cm := <-c.Chan()
		slow := make(chan struct{})
		inner.Gate = slow
		acked := make(chan error, 2)
		go func() { acked <- c.Ack(cm) }()
		synctest.Wait()
		go func() { acked <- c.Ack(cm) }()
		synctest.Wait()
		c.Nack(cm)
		inner.FailAcks(errors.New("refused"))
		slow <- struct{}{}
		require.Error(t, <-acked)
		inner.FailAcks(nil)
		time.Sleep(2 * time.Second) // the message is due, and Chan offers it
		synctest.Wait()
		slow <- struct{}{}
		require.NoError(t, <-acked)
		time.Sleep(time.Hour)
		select {
		case cm := <-c.Chan():
			t.Errorf("%v comes an hour after Ack returned nil", cm.ID())
		default:
		}
	})
}

// Two calls acknowledge one message at the same time. The first fails.
func TestAckBesideFailingAckSettles(t *testing.T) {
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
				require.Empty(t, second, "the second call returned before upstream did")
				inner.FailAcks(nil)
				inner.Gate <- struct{}{}
				require.NoError(t, <-second)
				require.Equal(t, []pulsar.MessageID{msg.ID()}, inner.Acks())
			})
		})
	}
}

// If an interceptor panics during Ack, the application still has the message, and may acknowledge it again.
func TestPanicDuringAckReleasesTheMessage(t *testing.T) {
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

func TestNackAfterCumulativeAckIsIgnored(t *testing.T) {
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

// The requested copy comes during an Ack that fails. When Ack returns, the Consumer hands the copy out.
func TestCopyReceivedDuringFailedAckIsHandedOutAfterIt(t *testing.T) {
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
		require.EqualValues(t, 1, c.RedeliveryCount(<-again))
		require.Zero(t, time.Since(start))
		require.Zero(t, c.Stats().Waiting)
		time.Sleep(time.Hour)
		require.Len(t, inner.Requests(), 1)
	}, testkit.FromBroker)
}
