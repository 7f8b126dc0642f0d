package suite

import (
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// A message that was published with the properties of a retry's origin, but empty, is retried as any other: neither
// early nor for ever.
func TestRetriesOfAMessageWithAnEmptyOrigin(t *testing.T) {
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
	delay := 100 * time.Millisecond
	c := b.Subscribe(b.Options("t", pulsar.Shared), redelivery.WithNackRedeliveryDelay(delay), redelivery.WithReconsumeBackoff(backoff.Fixed(delay)),
		redelivery.WithNackRetryTopic(delay), redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 3}))
	dead := b.SubscribeDeadLetters("t")
	b.Publish(pulsar.ProducerOptions{Topic: "t"}, &pulsar.ProducerMessage{Payload: []byte("x"), Properties: map[string]string{pulsar.SysPropertyRealTopic: "",
		pulsar.SysPropertyOriginMessageID: ""}})
	var nacked time.Time
	for n := range uint32(3) {
		msg := testkit.Next(t, c, 10*time.Second)
		require.Equal(t, n, msg.RedeliveryCount())
		require.GreaterOrEqual(t, time.Since(nacked), delay)
		nacked = time.Now()
		c.Nack(msg)
	}
	testkit.Next(t, dead, 10*time.Second)
}
