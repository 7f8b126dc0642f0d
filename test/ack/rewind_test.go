package ack

import (
	"fmt"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// After a rewind the broker sends messages again that are still in upstream's queue. A slow application would get the
// copies long after it has acknowledged the messages.
func TestRewindSparesMessagesAckedBySlowApplication(t *testing.T) {
	t.Parallel()
	const n = 300
	delay := 300 * time.Millisecond
	for name, way := range testkit.Ways(delay) {
		for _, kind := range []string{"Exclusive", "Failover"} {
			for _, response := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s AckWithResponse=%t", kind, name, response), func(t *testing.T) {
					t.Parallel()
					b := testkit.NewBroker(t)
					topic := b.NewTopic(0)
					b.Send(topic, n, false)
					opts := b.Options(topic, testkit.SubscriptionTypes[kind])
					opts.AckWithResponse = response
					c := b.Subscribe(opts, way.Option)
					j, failed := testkit.NewJournal(), false
					testkit.Drain(t, c, 2*time.Second, func(msg pulsar.Message) {
						j.Taken(msg)
						if !failed {
							failed = true
							way.Fail(c, msg)
							return
						}
						time.Sleep(8 * time.Millisecond)
						require.NoError(t, c.Ack(msg))
						j.Done(msg)
					})
					t.Logf("%+v", c.Stats())
					j.Complete(t, n)
					b.Settles(topic, 0)
				})
			}
		}
	}
}

// Messages are in the MessageChannel during a reconnection. The application acknowledges them when the broker has sent
// them again. It must not get the copies.
func TestReconnectSparesMessagesOfTheMessageChannel(t *testing.T) {
	t.Parallel()
	const n = 60
	for kind := range testkit.SubscriptionTypes {
		for _, batched := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s batched=%t", kind, batched), func(t *testing.T) {
				t.Parallel()
				b := testkit.NewBroker(t)
				topic := b.NewTopic(0)
				b.Send(topic, n, batched)
				opts := b.Options(topic, testkit.SubscriptionTypes[kind])
				opts.AckWithResponse = true
				c := b.Subscribe(opts)
				j, taken := testkit.NewJournal(), 0
				testkit.Drain(t, c, 3*time.Second, func(msg pulsar.Message) {
					j.Taken(msg)
					taken++
					if taken == 20 {
						b.Unload(topic)
						time.Sleep(time.Second) // until the consumer has reconnected and filled its queue
					}
					time.Sleep(20 * time.Millisecond)
					require.NoError(t, c.Ack(msg))
					j.Done(msg)
				})
				j.Complete(t, n)
				b.Settles(topic, 0)
			})
		}
	}
}
