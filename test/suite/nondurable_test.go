package suite

import (
	"fmt"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
)

// The broker forgets a subscription that is not durable with its connection: only what waits here comes back.
func TestNonDurable(t *testing.T) {
	t.Parallel()
	for kind := range kinds {
		for _, nacked := range []string{"before", "after"} {
			t.Run(fmt.Sprintf("%s, nacked %s", kind, nacked), func(t *testing.T) {
				t.Parallel()
				b := newBroker(t)
				topic := b.topic(0)
				o := b.options(topic, kinds[kind])
				o.SubscriptionMode, o.SubscriptionInitialPosition = pulsar.NonDurable, pulsar.SubscriptionPositionLatest
				c := b.subscribe(o, redelivery.WithNackRedeliveryDelay(3*time.Second))
				b.send(topic, 10, false)
				waits := map[string]bool{}
				var failed []pulsar.Message
				for i := range 10 {
					msg := receive(t, c)
					if i%2 == 0 {
						require.NoError(t, c.Ack(msg))
						continue
					}
					failed, waits[string(msg.Payload())] = append(failed, msg), true
				}
				unload := func() {
					time.Sleep(ms(500))
					b.unload(topic)
					time.Sleep(ms(500))
				}
				if nacked == "after" {
					unload()
				}
				for _, msg := range failed {
					c.Nack(msg)
				}
				if nacked == "before" {
					unload()
				}
				for range failed {
					msg := receive(t, c)
					require.True(t, waits[string(msg.Payload())], "%s comes again", msg.Payload())
					delete(waits, string(msg.Payload()))
					require.NoError(t, c.Ack(msg))
				}
			})
		}
	}
}
