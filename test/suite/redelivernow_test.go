package suite

import (
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// Half of the messages are in one batch, and some do not fit the memory limit: those come from the broker.
func TestRedeliverNowDeliversWhatWaits(t *testing.T) {
	t.Parallel()
	testkit.Each(t, testkit.SubscriptionTypes, func(t *testing.T, kind pulsar.SubscriptionType) {
		for name, options := range map[string][]redelivery.Option{
			"from memory": nil, "beyond the memory limit": {redelivery.WithMemoryLimit(0)}, "from the broker": {redelivery.WithRedeliveryFrom(redelivery.FromBroker)},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := testkit.NewBroker(t)
				topic := b.NewTopic(0)
				c := b.Subscribe(b.Options(topic, kind), append(options, redelivery.WithNackRedeliveryDelay(time.Hour))...)
				b.Send(topic, 5, false)
				b.Send(topic, 5, true)
				for range 10 {
					c.Nack(testkit.Receive(t, c))
				}
				require.Zero(t, c.Stats().Ready)
				require.Equal(t, 10, c.RedeliverNow())
				for range 10 {
					msg := testkit.Receive(t, c)
					require.EqualValues(t, 1, c.RedeliveryCount(msg))
					require.NoError(t, c.Ack(msg))
				}
				require.Zero(t, c.RedeliverNow())
				b.Settles(topic, 0)
			})
		}
	})
}
