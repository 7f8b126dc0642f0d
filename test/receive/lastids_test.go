package receive

import (
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// GetLastMessageIDs makes upstream ask for a backoff, as a reconnection does. The Consumer must still redeliver waiting
// messages.
func TestLastMessageIDsKeepWaitingMessages(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]pulsar.SubscriptionType{
		"Exclusive": pulsar.Exclusive, "Failover": pulsar.Failover, "Shared": pulsar.Shared, "Key_Shared": pulsar.KeyShared,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			c := b.Subscribe(b.Options(topic, kind), redelivery.WithNackRedeliveryDelay(2*time.Second))
			b.Send(topic, 1, false)
			c.Nack(testkit.Receive(t, c))
			_, err := c.GetLastMessageIDs()
			require.NoError(t, err)
			testkit.Receive(t, c)
		})
	}
}

// The Consumer must not take GetLastMessageIDs for a lost connection, after which it would drop prefetched messages.
func TestLastMessageIDsDropNoPrefetchedMessages(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	var inner pulsar.Consumer
	lost := false
	c, err := redelivery.SubscribeWith(func(opts pulsar.ConsumerOptions) (_ pulsar.Consumer, err error) {
		inner, err = b.Client.Subscribe(opts)
		return inner, err
	}, b.Options(topic, pulsar.Shared), redelivery.WithObserver(redelivery.Observer{Lost: func(redelivery.Lost) { lost = true }}))
	require.NoError(t, err)
	defer c.Close()
	b.Send(topic, 3, false)
	require.Eventually(t, func() bool { return len(inner.Chan()) == 3 }, 10*time.Second, 10*time.Millisecond)
	_, err = inner.GetLastMessageIDs()
	require.NoError(t, err)
	_, err = c.GetLastMessageIDs()
	require.NoError(t, err)
	require.Zero(t, c.Stats().Reconnecting)
	for range 3 {
		require.NoError(t, c.Ack(testkit.Receive(t, c)))
	}
	require.False(t, lost)
}
