package suite

import (
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// Upstream asks for a backoff to query a topic, as it does to reconnect: what waits goes on waiting.
func TestLastMessageIDsWhileMessagesWait(t *testing.T) {
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

// A partition becomes inactive during a Seek, while a message is offered.
func TestInactiveDuringASeek(t *testing.T) {
	for range 300 {
		c, s := testkit.NewStandIn(t, pulsar.ConsumerOptions{Type: pulsar.Failover})
		c.Chan()
		s.Publish(testkit.Entries(1, 2, 3)...)
		time.Sleep(time.Millisecond)
		var calls sync.WaitGroup
		calls.Go(func() { s.Opts.EventListener.BecameInactive(s, "t", -1) })
		calls.Go(func() { assert.NoError(t, c.SeekByTime(time.Now())) })
		calls.Wait()
		c.Close()
	}
}
