package nack

import (
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

func TestFailedMessagesComeBackOnce(t *testing.T) {
	t.Parallel()
	const delay = 300 * time.Millisecond
	testkit.Each(t, testkit.Ways(delay), func(t *testing.T, way testkit.Way) {
		testkit.Each(t, testkit.SubscriptionTypes, func(t *testing.T, kind pulsar.SubscriptionType) {
			testkit.Each(t, map[string]bool{"batched": true, "single": false}, func(t *testing.T, batched bool) {
				testkit.Each(t, map[string]int{"no partitions": 0, "two partitions": 2}, func(t *testing.T, partitions int) {
					b := testkit.NewBroker(t)
					topic := b.NewTopic(partitions)
					c := b.Subscribe(b.Options(topic, kind), way.Option)
					b.Send(topic, 10, batched)
					failed, acked := map[string]time.Time{}, map[string]bool{}
					for len(acked) < 10 {
						msg := testkit.Receive(t, c)
						name := string(msg.Payload())
						require.False(t, acked[name], "%q came after its Ack", name)
						at, again := failed[name]
						if !again {
							failed[name] = time.Now()
							way.Fail(c, msg)
							continue
						}
						require.GreaterOrEqual(t, time.Since(at), delay)
						assert.EqualValues(t, 1, c.RedeliveryCount(msg))
						acked[name] = true
						require.NoError(t, c.Ack(msg))
					}
					testkit.ReceiveNothing(t, c, 500*time.Millisecond)
					b.Settles(topic, partitions)
				})
			})
		})
	})
}

func TestDelayGrowsWithEachNackOfAMessage(t *testing.T) {
	t.Parallel()
	testkit.Each(t, map[string]pulsar.SubscriptionType{"Shared": pulsar.Shared, "Exclusive": pulsar.Exclusive},
		func(t *testing.T, kind pulsar.SubscriptionType) {
			testkit.Each(t, map[string]bool{"by message": false, "by id": true}, func(t *testing.T, byID bool) {
				b := testkit.NewBroker(t)
				topic := b.NewTopic(0)
				policy := backoff.Exponential{Min: 100 * time.Millisecond, Max: time.Second, Multiplier: 2}
				c := b.Subscribe(b.Options(topic, kind), redelivery.WithNackRedeliveryBackoff(policy))
				b.Send(topic, 1, false)
				var due time.Time
				for n := range uint32(6) {
					msg := testkit.Receive(t, c)
					require.False(t, time.Now().Before(due), "early")
					require.Equal(t, n, c.RedeliveryCount(msg))
					if n == 5 {
						require.NoError(t, c.Ack(msg))
						break
					}
					due = time.Now().Add(policy.Next(n))
					if byID {
						c.NackID(msg.ID())
					} else {
						c.Nack(msg)
					}
				}
				b.Settles(topic, 0)
			})
		})
}
