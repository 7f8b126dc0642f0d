package suite

import (
	"context"
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

// A retry topic is made again without a subscription that would last, which the Consumer could not subscribe to.
func TestNonDurableRetries(t *testing.T) {
	t.Parallel()
	for how, breaks := range map[string]func(*broker, string){
		"deleted":  func(b *broker, topic string) { b.rest("DELETE", topic, "?force=true", nil, nil) },
		"unloaded": (*broker).unload,
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			topic := b.topic(0)
			o := b.retrying(topic, 30)
			o.SubscriptionMode, o.SubscriptionInitialPosition = pulsar.NonDurable, pulsar.SubscriptionPositionLatest
			c := b.subscribe(o)
			b.send(topic, 2, false)
			msg, other := receive(t, c), receive(t, c)
			require.NoError(t, c.ReconsumeLaterAfter(bg, msg, 0, nil)) // there is a producer
			require.NoError(t, c.Ack(receive(t, c)))
			for range 3 {
				breaks(b, retryTopic(topic))
				time.Sleep(2 * time.Second) // until both are connected: the broker forgets what nobody has subscribed to
				require.Eventually(t, func() bool {
					ctx, cancel := context.WithTimeout(bg, 10*time.Second)
					defer cancel()
					return c.ReconsumeLaterAfter(ctx, other, 0, nil) == nil
				}, time.Minute, ms(100))
				other = receive(t, c)
			}
		})
	}
}
