package suite

import (
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
)

func TestAckTimeoutOfZeroIsNone(t *testing.T) {
	t.Parallel()
	b := newInProcess(t, pulsar.ClientOptions{})
	topic := b.topic(0)
	c, err := redelivery.Subscribe(b.client, b.options(topic, pulsar.Shared), redelivery.WithAckTimeout(0),
		redelivery.WithAckTimeoutRedeliveryBackoff(backoff.Fixed(0)))
	require.NoError(t, err)
	defer c.Close()
	b.send(topic, 1, false)
	d, err := c.Delivery(receive(t, c))
	require.NoError(t, err)
	require.Zero(t, d.AckDeadline)
}
