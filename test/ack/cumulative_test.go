package ack

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

func TestCumulativeAckEndsDelaysOfItsTopic(t *testing.T) {
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
		var msgs []pulsar.Message
		for n := range int64(5) {
			inner.Deliver(n)
			msgs = append(msgs, testkit.Receive(t, c))
			c.Nack(msgs[n])
		}
		other := pulsar.NewMessageID(2, 0, 0, 1)
		inner.Channel <- pulsar.ConsumerMessage{Consumer: inner,
			Message: testkit.Message{MessageID: other, TopicName: "other"}}
		c.Nack(testkit.Receive(t, c))
		require.NoError(t, c.AckCumulative(msgs[3]))
		require.Equal(t, 2, c.Stats().Waiting)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.ElementsMatch(t, []pulsar.MessageID{msgs[4].ID(), other}, inner.Requests())
	}, testkit.FromBroker)
}

// pulsar-client-go does not find the topic of a chunked message by its id.
func TestChunkedMessageOfSeveralTopicsIsAcknowledgedTwice(t *testing.T) {
	t.Parallel()
	for name, ack := range map[string]func(*redelivery.Consumer, pulsar.Message) error{
		"Ack": (*redelivery.Consumer).Ack, "AckCumulative": (*redelivery.Consumer).AckCumulative,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			opts := b.Options("", pulsar.Exclusive)
			opts.Topics = []string{topic, b.NewTopic(0)}
			c := b.Subscribe(opts)
			b.Publish(pulsar.ProducerOptions{Topic: topic, DisableBatching: true, EnableChunking: true, ChunkMaxMessageSize: 600},
				&pulsar.ProducerMessage{Payload: make([]byte, 1000)})
			msg := testkit.Receive(t, c)
			require.NoError(t, ack(c, msg))
			require.NoError(t, ack(c, msg))
			b.Settles(topic, 0)
		})
	}
}

// A cumulative acknowledgement covers messages that the application has received. Chan already offers the next message,
// which must still be delivered, in order.
func TestCumulativeAckSparesTheOfferedMessage(t *testing.T) {
	t.Parallel()
	for _, kind := range []pulsar.SubscriptionType{pulsar.Exclusive, pulsar.Failover} {
		for _, every := range []int{1, 10} {
			t.Run(fmt.Sprintf("%v/every %d", kind, every), func(t *testing.T) {
				t.Parallel()
				const n = 1000
				b := testkit.NewBroker(t)
				topic := b.NewTopic(0)
				c := b.Subscribe(b.Options(topic, kind))
				ch := c.Chan()
				b.Send(topic, n, false)
				for i := range n {
					select {
					case cm := <-ch:
						require.Equal(t, fmt.Sprint(i), string(cm.Payload()), "a message is missing or out of order")
						if i%every == every-1 {
							require.NoError(t, c.AckCumulative(cm))
						}
					case <-time.After(10 * time.Second):
						t.Fatalf("message %d of %d did not come", i, n)
					}
				}
				b.Settles(topic, 0)
			})
		}
	}
}

// A stored id may be of a partition that has sent no message yet.
func TestCumulativeAckOfStoredIDSparesOtherPartitions(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(2)
	partitions := testkit.PartitionsOf(topic, 2)
	for _, partition := range partitions {
		b.Publish(pulsar.ProducerOptions{Topic: partition}, &pulsar.ProducerMessage{Payload: []byte(partition)})
	}
	stored := map[string][]byte{}
	c := b.Subscribe(b.Options(topic, pulsar.Exclusive))
	for range partitions {
		msg := testkit.Receive(t, c)
		stored[msg.Topic()] = msg.ID().Serialize()
		if msg.Topic() == partitions[1] {
			require.NoError(t, c.AckCumulative(msg))
		}
	}
	c.Close()
	c = b.Subscribe(b.Options(topic, pulsar.Exclusive), redelivery.WithNackRedeliveryDelay(200*time.Millisecond))
	msg := testkit.Receive(t, c)
	require.Equal(t, partitions[0], msg.Topic())
	c.Nack(msg)
	id, err := pulsar.DeserializeMessageID(stored[partitions[1]])
	require.NoError(t, err)
	require.NoError(t, c.AckIDCumulative(id))
	require.Equal(t, partitions[0], testkit.Receive(t, c).Topic())
}

// The next cumulative acknowledgement covers the messages of the refused one, too. Within a batch, upstream sends a
// cumulative acknowledgement only for the last message.
func TestRefusedCumulativeAckIsMadeGoodByTheNext(t *testing.T) {
	t.Parallel()
	for name, batch := range map[string]bool{"one by one": false, "a batch": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
			topic := b.NewTopic(0)
			b.Send(topic, 1, false)
			b.Send(topic, 3, batch)
			opts := b.Options(topic, pulsar.Exclusive)
			opts.AckWithResponse = true
			c := b.Subscribe(opts)
			var msgs []pulsar.Message
			for range 3 {
				msgs = append(msgs, testkit.Receive(t, c))
			}
			b.InProcess.Inject("ACK", "", 1, pulsartest.Fail("PersistenceError", "injected"))
			require.ErrorContains(t, c.AckCumulative(msgs[1]), "injected")
			require.NoError(t, c.InProgress(msgs[1]), "the application no longer has the message")
			require.NoError(t, c.AckCumulative(msgs[2]))
			require.NoError(t, c.AckCumulative(testkit.Receive(t, c)))
			b.Settles(topic, 0)
			testkit.ReceiveNothing(t, c, 300*time.Millisecond)
		})
	}
}

// A cumulative acknowledgement is lost with its connection, and the Consumer does not repeat it (docs/reliability.md).
// Later messages are delivered, and the next cumulative acknowledgement covers all messages. If the process ends before
// that, the next consumer gets the messages.
func TestSwallowedCumulativeAckIsMadeGoodByTheNext(t *testing.T) {
	t.Parallel()
	const n = 30
	for batch, name := range []string{"one by one", "batches"} {
		for _, kind := range []pulsar.SubscriptionType{pulsar.Exclusive, pulsar.Failover} {
			for _, restarts := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%v/restart %v", name, kind, restarts), func(t *testing.T) {
					t.Parallel()
					b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
					topic := b.NewTopic(0)
					c := b.Subscribe(b.Options(topic, kind))
					b.Send(topic, n, batch == 1)
					var last pulsar.Message
					for range n {
						last = testkit.Receive(t, c)
					}
					b.InProcess.Inject("ACK", "", 100, pulsartest.Drop)
					require.NoError(t, c.AckCumulative(last))
					time.Sleep(300 * time.Millisecond) // upstream sends the acknowledgement within 100 ms
					b.InProcess.DropConnections()
					require.Eventually(t, func() bool { return c.Stats().Reconnecting == 0 }, testkit.Patience,
						time.Millisecond)
					b.InProcess.Inject("ACK", "", 0, pulsartest.Pass)
					testkit.ReceiveNothing(t, c, 500*time.Millisecond) // an acknowledged message does not come again
					if restarts {
						backlog := b.Stats(topic, 0).Backlog
						c.Close()
						c = b.Subscribe(b.Options(topic, kind))
						if backlog > 0 {
							for range n {
								last = testkit.Receive(t, c)
							}
						}
					} else {
						b.Send(topic, 1, false)
						last = testkit.Receive(t, c)
					}
					require.NoError(t, c.AckCumulative(last))
					b.Settles(topic, 0)
					testkit.ReceiveNothing(t, c, 300*time.Millisecond)
				})
			}
		}
	}
}

// Messages that were acknowledged before a Seek come again after it: the Consumer does not acknowledge them again over
// the new connection.
func TestSeekAfterCumulativeAckRedelivers(t *testing.T) {
	t.Parallel()
	const n = 30
	for _, kind := range []pulsar.SubscriptionType{pulsar.Exclusive, pulsar.Failover} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			o := b.Options(topic, kind)
			// upstream must not send the acknowledgement yet: it would then drop all redeliveries
			o.AckGroupingOptions = &pulsar.AckGroupingOptions{MaxSize: n, MaxTime: time.Hour}
			c := b.Subscribe(o)
			b.Send(topic, n, false)
			for range 3 {
				var last pulsar.Message
				for i := range n {
					last = testkit.Receive(t, c)
					require.Equal(t, fmt.Sprint(i), string(last.Payload()))
				}
				require.NoError(t, c.AckCumulative(last))
				require.NoError(t, c.SeekByTime(time.Unix(0, 0)))
			}
			for range n {
				require.NoError(t, c.Ack(testkit.Receive(t, c)))
			}
			b.Settles(topic, 0)
		})
	}
}

// A seek by another consumer of the subscription breaks this consumer's connection. Messages that this consumer
// acknowledged some time ago must come again. Upstream would drop them if acknowledgements were grouped and had no
// responses, so one case has responses, and the other has no groups.
func TestSeekByAnotherConsumerAfterCumulativeAckRedelivers(t *testing.T) {
	t.Parallel()
	const n = 10
	testkit.Each(t, map[string]func(*pulsar.ConsumerOptions){
		"responses":   func(o *pulsar.ConsumerOptions) { o.AckWithResponse = true },
		"not grouped": func(o *pulsar.ConsumerOptions) { o.AckGroupingOptions = &pulsar.AckGroupingOptions{MaxSize: 1} },
	}, func(t *testing.T, set func(*pulsar.ConsumerOptions)) {
		b := testkit.NewBroker(t)
		topic := b.NewTopic(1)
		o := b.Options(topic, pulsar.Failover)
		set(&o)
		o.Name = "a" // the consumer with the first name is active
		c := b.Subscribe(o)
		o.Name = "b"
		other := b.Subscribe(o)
		b.Send(topic, n, false)
		var last pulsar.Message
		for range n {
			last = testkit.Receive(t, c)
		}
		require.NoError(t, c.AckCumulative(last))
		b.Settles(topic, 1)
		testkit.ReceiveNothing(t, c, settledForSure) // the Consumer notices that this time has passed only while the application receives
		require.NoError(t, other.SeekByTime(time.Unix(0, 0)))
		idle := func() bool { return c.Stats().Reconnecting+other.Stats().Reconnecting == 0 }
		require.Eventually(t, idle, testkit.Patience, 10*time.Millisecond)
		time.Sleep(time.Second)
		require.Equal(t, n, b.Stats(topic, 1).Backlog, "messages after the new cursor were acknowledged")
		got := map[string]bool{}
		for range n {
			msg, err := firstOf(t, c, other)
			require.NoError(t, err)
			got[string(msg.Payload())] = true
		}
		require.Len(t, got, n)
	})
}

// settledForSure is longer than the time after which the Consumer is sure of an acknowledgement. A copy that comes
// later shows that the cursor was moved, and not that the acknowledgement was lost.
const settledForSure = 8 * time.Second

// firstOf receives from the first consumer that has a message.
func firstOf(t *testing.T, consumers ...*redelivery.Consumer) (msg pulsar.Message, err error) {
	t.Helper()
	for start := time.Now(); time.Since(start) < testkit.Patience; {
		for _, c := range consumers {
			msg, err = testkit.ReceiveWithin(c, 100*time.Millisecond)
			if err == nil {
				return msg, c.Ack(msg)
			}
		}
	}
	return nil, err
}

// A cumulative ack settles the messages before its own message, which may be settled already.
func TestCumulativeAckOfSettledMessageSettlesEarlierOnes(t *testing.T) {
	t.Parallel()
	const waiting, held, last = 3, 3, 6
	for _, kind := range []string{"Exclusive", "Failover"} {
		for _, pause := range []time.Duration{0, 1500 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s after %v", kind, pause), func(t *testing.T) {
				t.Parallel()
				b := testkit.NewBroker(t)
				topic := b.NewTopic(0)
				b.Send(topic, last+1, false)
				opts := b.Options(topic, testkit.SubscriptionTypes[kind])
				opts.AckWithResponse = true
				c := b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(4*time.Second),
					redelivery.WithAckTimeout(4*time.Second))
				var msgs []pulsar.Message
				for range last + 1 {
					msgs = append(msgs, testkit.Receive(t, c))
				}
				require.NoError(t, c.Ack(msgs[last]))
				for _, msg := range msgs[:waiting] {
					c.Nack(msg)
				}
				time.Sleep(pause)
				require.NoError(t, c.AckCumulative(msgs[last]))
				require.Zero(t, c.Stats().Waiting)
				testkit.ReceiveNothing(t, c, 6*time.Second)
				b.Settles(topic, 0)
			})
		}
	}
}

// ackBesideWaiting makes messages of one topic wait, and returns a function that receives a message of another topic
// and acknowledges it cumulatively.
func ackBesideWaiting(tb testing.TB, waiting int) (ack func()) {
	c, s := testkit.NewStandIn(tb, pulsar.ConsumerOptions{Type: pulsar.Exclusive},
		redelivery.WithNackRedeliveryDelay(time.Hour))
	take := func(topic string, n int64) pulsar.Message {
		s.Publish(testkit.Entry(topic, n))
		msg, err := c.Receive(context.Background())
		require.NoError(tb, err)
		s.Truncate()
		return msg
	}
	for n := range int64(waiting) {
		c.Nack(take("waiting", n))
	}
	n := int64(waiting) // so that each message has a new id
	return func() {
		n++
		if err := c.AckCumulative(take("acknowledged", n)); err != nil {
			tb.Fatal(err)
		}
	}
}

// The bound is wide: to look at all waiting messages would take a hundred times as long.
func TestCumulativeAckBesideWaitingPartitionIsCheap(t *testing.T) {
	cost := func(waiting int) time.Duration {
		ack := ackBesideWaiting(t, waiting)
		best := time.Hour
		for range 300 {
			begin := time.Now()
			ack()
			best = min(best, time.Since(begin))
		}
		return best
	}
	alone, beside := cost(0), cost(100_000)
	t.Logf("%v alone, %v beside 100,000 messages", alone, beside)
	require.Less(t, beside, 30*alone)
}
