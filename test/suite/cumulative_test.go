package suite

import (
	"fmt"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// A cumulative acknowledgement covers what the application has had. The message that Chan offers next is not among
// that: it is handed out, and in its turn.
func TestChanWithAckCumulative(t *testing.T) {
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
						require.Equal(t, fmt.Sprint(i), string(cm.Payload()), "handed out in order, none left out")
						if i%every == every-1 {
							require.NoError(t, c.AckCumulative(cm))
						}
					case <-time.After(10 * time.Second):
						t.Fatalf("message %d of %d does not come", i, n)
					}
				}
				b.Settles(topic, 0)
			})
		}
	}
}

// An id that was stored may be of a partition that has sent nothing yet: no message of another partition is settled by
// it.
func TestCumulativeAckOfAStoredIDOfAnotherPartition(t *testing.T) {
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
