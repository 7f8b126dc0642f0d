package suite

import (
	"fmt"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// A cumulative acknowledgement covers what the application has had. The message that Chan offers next is not among that: it is handed
// out, and in its turn.
func TestChanWithAckCumulative(t *testing.T) {
	t.Parallel()
	for _, kind := range []pulsar.SubscriptionType{pulsar.Exclusive, pulsar.Failover} {
		for _, every := range []int{1, 10} {
			t.Run(fmt.Sprintf("%v/every %d", kind, every), func(t *testing.T) {
				t.Parallel()
				const n = 1000
				b := newBroker(t)
				topic := b.topic(0)
				c := b.subscribe(b.options(topic, kind))
				ch := c.Chan()
				b.send(topic, n, false)
				for i := range n {
					select {
					case cm := <-ch:
						require.Equal(t, fmt.Sprint(i), string(cm.Payload()), "handed out in order, none left out")
						if i%every == every-1 {
							require.NoError(t, c.AckCumulative(cm))
						}
					case <-time.After(10 * time.Second):
						t.Fatalf("message %d of %d does not come", i, n)
					}
				}
				b.settles(topic, 0)
			})
		}
	}
}

// An acknowledgement that the broker refused is made again by the next one, also within a batch, where upstream sends nothing before its last
// message.
func TestAckCumulativeAfterARefusedOne(t *testing.T) {
	t.Parallel()
	server := pulsartest.NewServer(t)
	server.Publish(t, "t", &pulsar.ProducerMessage{Payload: []byte("before")})
	producer, err := server.Client(t).CreateProducer(pulsar.ProducerOptions{Topic: "t", BatchingMaxPublishDelay: time.Hour})
	require.NoError(t, err)
	for range 3 {
		producer.SendAsync(t.Context(), &pulsar.ProducerMessage{Payload: []byte("batch")}, func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
	}
	require.NoError(t, producer.FlushWithCtx(t.Context()))
	c, err := redelivery.Subscribe(server.Client(t), pulsar.ConsumerOptions{
		Topic: "t", SubscriptionName: "s", AckWithResponse: true, SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	var msgs []pulsar.Message
	for range 3 {
		msgs = append(msgs, receive(t, c))
	}
	server.Inject("ACK", "t", 1, pulsartest.Fail("PersistenceError", "injected"))
	require.ErrorContains(t, c.AckCumulative(msgs[1]), "injected")
	require.Equal(t, 2, server.Subscription("t", "s").Backlog)
	require.NoError(t, c.AckCumulative(msgs[2]))
	require.Equal(t, 1, server.Subscription("t", "s").Backlog, "what is before the batch")
	require.NoError(t, c.AckCumulative(receive(t, c)))
	require.Zero(t, server.Subscription("t", "s").Backlog)
}

// An id that was stored may be of a partition that has sent nothing yet: no message of another partition is settled by it.
func TestCumulativeAckOfAStoredIDOfAnotherPartition(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic(2)
	partitions := partitionsOf(topic, 2)
	for _, partition := range partitions {
		b.publish(pulsar.ProducerOptions{Topic: partition}, &pulsar.ProducerMessage{Payload: []byte(partition)})
	}
	stored := map[string][]byte{}
	c := b.subscribe(b.options(topic, pulsar.Exclusive))
	for range partitions {
		msg := receive(t, c)
		stored[msg.Topic()] = msg.ID().Serialize()
		if msg.Topic() == partitions[1] {
			require.NoError(t, c.AckCumulative(msg))
		}
	}
	c.Close()
	c = b.subscribe(b.options(topic, pulsar.Exclusive), redelivery.WithNackRedeliveryDelay(ms(200)))
	msg := receive(t, c)
	require.Equal(t, partitions[0], msg.Topic())
	c.Nack(msg)
	id, err := pulsar.DeserializeMessageID(stored[partitions[1]])
	require.NoError(t, err)
	require.NoError(t, c.AckIDCumulative(id))
	require.Equal(t, partitions[0], receive(t, c).Topic())
}
