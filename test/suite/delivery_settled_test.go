package suite

import (
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

func TestDeliveryOfNackedAndAckedMessagesSaysSo(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	c := b.Subscribe(b.Options(topic, pulsar.Shared), redelivery.WithNackRedeliveryDelay(time.Minute))
	b.Send(topic, 2, false)
	state := func(msg pulsar.Message) [2]bool {
		d, err := c.Delivery(msg)
		require.NoError(t, err)
		return [2]bool{d.Waiting, d.Settled}
	}
	nacked, acked := testkit.Receive(t, c), testkit.Receive(t, c)
	require.Equal(t, [2]bool{}, state(nacked))
	c.Nack(nacked)
	require.NoError(t, c.Ack(acked))
	require.Equal(t, [2]bool{true, false}, state(nacked))
	require.Equal(t, [2]bool{false, true}, state(acked))
	require.NoError(t, c.Ack(nacked))
	require.Equal(t, [2]bool{false, true}, state(nacked))
}
