package suite

import (
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// Bytes of somebody else name a batch of a size that there is no memory for.
func TestAnIDOfAHugeBatch(t *testing.T) {
	var data []byte
	for field, v := range map[protowire.Number]uint64{1: 1, 2: 1, 4: 0, 6: 1<<31 - 1} {
		data = protowire.AppendVarint(protowire.AppendTag(data, field, protowire.VarintType), v)
	}
	id, err := pulsar.DeserializeMessageID(data)
	require.NoError(t, err)
	c, _ := testkit.NewStandIn(t, pulsar.ConsumerOptions{Type: pulsar.Shared})
	c.NackID(id)
	require.EqualValues(t, 1, c.Stats().Failed)
}

// incomparable is an id that is no key of a map.
type incomparable struct {
	pulsar.MessageID
	_ []byte
}

func TestAnIDThatCannotBeCompared(t *testing.T) {
	c, s := testkit.NewStandIn(t, pulsar.ConsumerOptions{Type: pulsar.Shared})
	s.Publish(testkit.Entries(1)...)
	id := incomparable{MessageID: testkit.Receive(t, c).ID()}
	require.ErrorContains(t, c.AckIDList([]pulsar.MessageID{id, id}), "incomparable, only comparable ids are accepted, such as those of pulsar-client-go (1 of 2)")
	require.NoError(t, c.AckID(id))
}

// An id is found in its partition, though it came from somewhere else and the message is forgotten, or another one was
// nacked by an id that the Consumer does not know.
func TestIDsOfPartitions(t *testing.T) {
	t.Parallel()
	t.Run("cumulative", func(t *testing.T) {
		t.Parallel()
		b := testkit.NewBroker(t)
		topic := b.NewTopic(2)
		c := b.Subscribe(b.Options(topic, pulsar.Failover), redelivery.WithNackRedeliveryDelay(12*time.Second))
		b.Send(topic, 10, false)
		last := map[int32]pulsar.MessageID{}
		for range 10 {
			msg := testkit.Receive(t, c)
			if partition := msg.ID().PartitionIdx(); last[partition] == nil {
				last[partition] = msg.ID()
				c.Nack(msg)
			} else {
				last[partition] = msg.ID()
				require.NoError(t, c.Ack(msg))
			}
		}
		testkit.ReceiveNothing(t, c, 6*time.Second) // until they are forgotten
		for _, id := range last {
			require.NoError(t, c.AckIDCumulative(id))
		}
		require.Zero(t, c.Stats().Waiting)
		b.Settles(topic, 2)
	})
	t.Run("from bytes", func(t *testing.T) {
		t.Parallel()
		b := testkit.NewBroker(t)
		topic := b.NewTopic(2)
		c := b.Subscribe(b.Options(topic, pulsar.KeyShared), redelivery.WithNackRedeliveryDelay(4*time.Second))
		b.Send(topic, 8, false)
		var msgs []pulsar.Message
		for range 8 {
			msgs = append(msgs, testkit.Receive(t, c))
		}
		for _, msg := range msgs[:6] {
			require.NoError(t, c.Ack(msg))
		}
		time.Sleep(6 * time.Second) // until they are forgotten
		for _, msg := range msgs[:6] {
			c.NackID(msg.ID())
		}
		for _, msg := range msgs[6:] {
			c.Nack(msg)
			id, err := pulsar.DeserializeMessageID(msg.ID().Serialize())
			require.NoError(t, err)
			require.NoError(t, c.AckID(id))
		}
		testkit.ReceiveNothing(t, c, 6*time.Second)
	})
}
