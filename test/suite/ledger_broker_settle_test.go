package suite

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// The redelivery is ready for whoever reads the channel next, and then its message is acknowledged.
func TestChanHandsOutNothingThatWasAcknowledgedMeanwhile(t *testing.T) {
	t.Parallel()
	for how, ack := range map[string]func(*redelivery.Consumer, pulsar.Message) error{
		"Ack": (*redelivery.Consumer).Ack,
		"AckIDList": func(c *redelivery.Consumer, msg pulsar.Message) error {
			return c.AckIDList([]pulsar.MessageID{msg.ID()})
		},
		"AckCumulative": (*redelivery.Consumer).AckCumulative,
	} {
		for kind := range testkit.SubscriptionTypes {
			if how == "AckCumulative" && kind != "Exclusive" && kind != "Failover" {
				continue
			}
			t.Run(how+" "+kind, func(t *testing.T) {
				t.Parallel()
				b := testkit.NewBroker(t)
				topic := b.NewTopic(0)
				b.Send(topic, 2, false)
				c := b.Subscribe(b.Options(topic, testkit.SubscriptionTypes[kind]), redelivery.WithNackRedeliveryDelay(100*time.Millisecond))
				first, second := <-c.Chan(), <-c.Chan()
				c.Nack(first)
				c.NackID(second.ID())
				time.Sleep(time.Second)
				require.NoError(t, ack(c, first))
				require.NoError(t, ack(c, second))
				select {
				case cm := <-c.Chan():
					require.FailNow(t, "a message came after its Ack had returned nil", "%s", cm.Payload())
				case <-time.After(500 * time.Millisecond):
				}
				require.Zero(t, c.Stats().Waiting)
				b.Settles(topic, 0)
			})
		}
	}
}

// A worker that was canceled takes nothing any more.
func TestReceiveWithADoneContextTakesNothing(t *testing.T) {
	t.Parallel()
	const n = 50
	for name, adjust := range map[string]func(*pulsar.ConsumerOptions){
		"plain":      func(*pulsar.ConsumerOptions) {},
		"exclusive":  func(o *pulsar.ConsumerOptions) { o.Type = pulsar.Exclusive },
		"zero-queue": func(o *pulsar.ConsumerOptions) { o.EnableZeroQueueConsumer = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			b.Send(topic, n, false)
			opts := b.Options(topic, pulsar.Shared)
			adjust(&opts)
			c := b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(100*time.Millisecond))
			c.Nack(testkit.Receive(t, c))
			time.Sleep(500 * time.Millisecond) // messages are ready, and the redelivery as well
			canceled, cancel := context.WithCancel(context.Background())
			cancel()
			expired, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
			defer cancel()
			for range n {
				msg, err := c.Receive(canceled)
				require.ErrorIs(t, err, context.Canceled)
				require.Nil(t, msg)
				_, err = c.Receive(expired)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			j := testkit.NewJournal()
			testkit.Drain(t, c, time.Second, func(msg pulsar.Message) {
				j.Taken(msg)
				require.NoError(t, c.Ack(msg))
				j.Done(msg)
			})
			j.Complete(t, n)
		})
	}
}

// Workers that were canceled take nothing either while seeks bring the messages back again and again.
func TestReceiveWithADoneContextTakesNothingDuringSeeks(t *testing.T) {
	t.Parallel()
	const n = 200
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	b.Send(topic, n, false)
	c := b.Subscribe(b.Options(topic, pulsar.Exclusive))
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	seeking, stop := context.WithTimeout(context.Background(), 3*time.Second)
	defer stop()
	var workers sync.WaitGroup
	var taken atomic.Int32
	for range 4 {
		workers.Go(func() {
			for seeking.Err() == nil {
				if _, err := c.Receive(canceled); err == nil {
					taken.Add(1)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	for seeking.Err() == nil {
		require.NoError(t, c.SeekByTime(time.Now().Add(-time.Hour)))
		time.Sleep(100 * time.Millisecond)
	}
	workers.Wait()
	require.Zero(t, taken.Load(), "messages were taken with a done context")
	j := testkit.NewJournal()
	j.Done(testkit.Receive(t, c)) // after the last Seek the consumer connects again
	testkit.Drain(t, c, time.Second, func(msg pulsar.Message) { j.Done(msg) })
	j.Complete(t, n)
}
