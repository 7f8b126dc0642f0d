package suite

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
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
		for kind := range kinds {
			if how == "AckCumulative" && kind != "Exclusive" && kind != "Failover" {
				continue
			}
			t.Run(how+" "+kind, func(t *testing.T) {
				t.Parallel()
				b := newBroker(t)
				topic := b.topic(0)
				b.send(topic, 2, false)
				c := b.subscribe(b.options(topic, kinds[kind]), redelivery.WithNackRedeliveryDelay(ms(100)))
				first, second := <-c.Chan(), <-c.Chan()
				c.Nack(first)
				c.NackID(second.ID())
				time.Sleep(time.Second)
				require.NoError(t, ack(c, first))
				require.NoError(t, ack(c, second))
				select {
				case cm := <-c.Chan():
					require.FailNow(t, "a message came after its Ack had returned nil", "%s", cm.Payload())
				case <-time.After(ms(500)):
				}
				require.Zero(t, c.Stats().Waiting)
				b.settles(topic, 0)
			})
		}
	}
}

// A cumulative ack settles what came before its message, whatever became of the message itself.
func TestCumulativeAckOfASettledMessageSettlesEarlierOnes(t *testing.T) {
	t.Parallel()
	const waiting, held, last = 3, 3, 6
	for _, kind := range []string{"Exclusive", "Failover"} {
		for _, pause := range []time.Duration{0, ms(1500)} {
			t.Run(fmt.Sprintf("%s after %v", kind, pause), func(t *testing.T) {
				t.Parallel()
				b := newBroker(t)
				topic := b.topic(0)
				b.send(topic, last+1, false)
				opts := b.options(topic, kinds[kind])
				opts.AckWithResponse = true
				c := b.subscribe(opts, redelivery.WithNackRedeliveryDelay(4*time.Second), redelivery.WithAckTimeout(4*time.Second))
				var msgs []pulsar.Message
				for range last + 1 {
					msgs = append(msgs, receive(t, c))
				}
				require.NoError(t, c.Ack(msgs[last]))
				for _, msg := range msgs[:waiting] {
					c.Nack(msg)
				}
				time.Sleep(pause)
				require.NoError(t, c.AckCumulative(msgs[last]))
				require.Zero(t, c.Stats().Waiting)
				nothing(t, c, 6*time.Second)
				b.settles(topic, 0)
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
			b := newBroker(t)
			topic := b.topic(0)
			b.send(topic, n, false)
			opts := b.options(topic, pulsar.Shared)
			adjust(&opts)
			c := b.subscribe(opts, redelivery.WithNackRedeliveryDelay(ms(100)))
			c.Nack(receive(t, c))
			time.Sleep(ms(500)) // messages are ready, and the redelivery as well
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
			j := newJournal()
			drain(t, c, time.Second, func(msg pulsar.Message) {
				j.taken(msg)
				require.NoError(t, c.Ack(msg))
				j.done(msg)
			})
			j.complete(t, n)
		})
	}
}

// Workers that were canceled take nothing either while seeks bring the messages back again and again.
func TestReceiveWithADoneContextTakesNothingDuringSeeks(t *testing.T) {
	t.Parallel()
	const n = 200
	b := newBroker(t)
	topic := b.topic(0)
	b.send(topic, n, false)
	c := b.subscribe(b.options(topic, pulsar.Exclusive))
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
		time.Sleep(ms(100))
	}
	workers.Wait()
	require.Zero(t, taken.Load(), "messages were taken with a done context")
	j := newJournal()
	j.done(receive(t, c)) // after the last Seek the consumer connects again
	drain(t, c, time.Second, func(msg pulsar.Message) { j.done(msg) })
	j.complete(t, n)
}
