package suite

import (
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

func TestAckTimeoutOfZeroIsNone(t *testing.T) {
	t.Parallel()
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
	topic := b.NewTopic(0)
	c, err := redelivery.Subscribe(b.Client, b.Options(topic, pulsar.Shared), redelivery.WithAckTimeout(0),
		redelivery.WithAckTimeoutRedeliveryBackoff(backoff.Fixed(0)))
	require.NoError(t, err)
	defer c.Close()
	b.Send(topic, 1, false)
	d, err := c.Delivery(testkit.Receive(t, c))
	require.NoError(t, err)
	require.Zero(t, d.AckDeadline)
}
