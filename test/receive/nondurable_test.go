package receive

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// The broker forgets a non-durable subscription when the connection ends. Only messages that wait in memory come back.
func TestNonDurableConsumerRedeliversFromMemory(t *testing.T) {
	t.Parallel()
	for kind := range testkit.SubscriptionTypes {
		for _, nacked := range []string{"before", "after"} {
			t.Run(fmt.Sprintf("%s, nacked %s", kind, nacked), func(t *testing.T) {
				t.Parallel()
				b := testkit.NewBroker(t)
				topic := b.NewTopic(0)
				o := b.Options(topic, testkit.SubscriptionTypes[kind])
				o.SubscriptionMode, o.SubscriptionInitialPosition = pulsar.NonDurable, pulsar.SubscriptionPositionLatest
				c := b.Subscribe(o, redelivery.WithNackRedeliveryDelay(3*time.Second))
				b.Send(topic, 10, false)
				waits := map[string]bool{}
				var failed []pulsar.Message
				for i := range 10 {
					msg := testkit.Receive(t, c)
					if i%2 == 0 {
						require.NoError(t, c.Ack(msg))
						continue
					}
					failed, waits[string(msg.Payload())] = append(failed, msg), true
				}
				unload := func() {
					time.Sleep(500 * time.Millisecond)
					b.Unload(topic)
					time.Sleep(500 * time.Millisecond)
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
					msg := testkit.Receive(t, c)
					require.True(t, waits[string(msg.Payload())], "%s comes again", msg.Payload())
					delete(waits, string(msg.Payload()))
					require.NoError(t, c.Ack(msg))
				}
			})
		}
	}
}

// When a deleted retry topic is created again, it must not get a durable subscription: a non-durable Consumer could not
// subscribe to it.
func TestNonDurableRetriesOutliveTheirTopic(t *testing.T) {
	t.Parallel()
	for how, breaks := range map[string]func(*testkit.Broker, string){
		"deleted":  func(b *testkit.Broker, topic string) { b.Admin("DELETE", topic, "?force=true", nil, nil) },
		"unloaded": (*testkit.Broker).Unload,
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			o := b.RetryOptions(topic, 30)
			o.SubscriptionMode, o.SubscriptionInitialPosition = pulsar.NonDurable, pulsar.SubscriptionPositionLatest
			c := b.Subscribe(o)
			b.Send(topic, 2, false)
			msg, other := testkit.Receive(t, c), testkit.Receive(t, c)
			require.NoError(t, c.ReconsumeLaterAfter(context.Background(), msg, 0, nil)) // creates the producer
			require.NoError(t, c.Ack(testkit.Receive(t, c)))
			for range 3 {
				breaks(b, testkit.RetryTopic(topic))
				b.AwaitPermits(testkit.RetryTopic(topic))
				require.Eventually(t, func() bool {
					ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
					defer cancel()
					return c.ReconsumeLaterAfter(ctx, other, 0, nil) == nil
				}, time.Minute, 100*time.Millisecond)
				other = testkit.Receive(t, c)
			}
		})
	}
}
