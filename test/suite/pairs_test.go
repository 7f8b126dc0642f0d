package suite

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// A handler that had a message for the second time fails on it just after a Seek.
func TestALateNackAfterASeek(t *testing.T) {
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
		t.Error("lost")
	})
}

// Failover, Chan, cumulative acks: another partition becomes inactive while a message is on offer and a nacked one is
// due.
func TestAnotherPartitionBecomesInactive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := testkit.NewFake()
		c, opts := testkit.SubscribeFakeWith(t, inner, pulsar.ConsumerOptions{Type: pulsar.Failover}, redelivery.WithNackRedeliveryDelay(time.Second))
		ch := c.Chan()
		send := func(n int64) {
			inner.Queue <- pulsar.ConsumerMessage{Consumer: inner, Message: testkit.Message{MessageID: pulsar.NewMessageID(1, n, 0, 0), TopicName: "p0"}}
		}
		send(1)
		cm := <-ch
		c.Nack(cm)
		for n := int64(2); n < 6; n++ {
			send(n)
		}
		synctest.Wait()
		time.Sleep(2 * time.Second) // a slow handler: 1 is due, 2 is offered
		synctest.Wait()
		opts.EventListener.BecameInactive(inner, "p1", 1)
		synctest.Wait()
		var got []int64
		for range 4 {
			select {
			case cm := <-ch:
				got = append(got, cm.ID().EntryID())
				require.NoError(t, c.AckCumulative(cm))
				synctest.Wait()
			case <-time.After(time.Minute):
			}
		}
		require.Contains(t, got, int64(2), "or it would be acknowledged unseen")
	})
}
