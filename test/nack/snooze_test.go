package nack

import (
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// A snooze changes neither the redelivery count nor the backoff, and MaxDeliveries does not count it.
func TestSnoozeDoesNotCount(t *testing.T) {
	t.Parallel()
	testkit.Each(t, testkit.SubscriptionTypes, func(t *testing.T, kind pulsar.SubscriptionType) {
		testkit.Each(t, map[string]bool{"batched": true, "single": false}, func(t *testing.T, batched bool) {
			testkit.Each(t, map[string][]redelivery.Option{"": nil,
				"from broker": {redelivery.WithRedeliveryFrom(redelivery.FromBroker)}},
				func(t *testing.T, options []redelivery.Option) {
					b := testkit.NewBroker(t)
					topic := b.NewTopic(0)
					opts := b.Options(topic, kind)
					opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 2}
					c := b.Subscribe(opts, append(options,
						redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: 300 * time.Millisecond}),
						redelivery.WithAckTimeout(5000*time.Millisecond))...)
					const n = 4
					b.Send(topic, n, batched)
					at := map[string]time.Time{}
					for range 5 {
						for range n {
							msg := testkit.Receive(t, c)
							require.GreaterOrEqual(t, time.Since(at[string(msg.Payload())]), 100*time.Millisecond)
							at[string(msg.Payload())] = time.Now()
							assert.Zero(t, c.RedeliveryCount(msg))
							assert.Zero(t, msg.RedeliveryCount())
							d, err := c.Delivery(msg)
							require.NoError(t, err)
							assert.Equal(t, 300*time.Millisecond, d.NackDelay)
							assert.False(t, d.Last)
							require.NoError(t, c.Snooze(msg, 100*time.Millisecond))
							require.NoError(t, c.Snooze(msg, time.Hour), "the second snooze of a message failed")
						}
					}
					for range n {
						c.Nack(testkit.Receive(t, c))
					}
					for range n { // each delivery is the last one that MaxDeliveries allows
						msg := testkit.Receive(t, c)
						assert.EqualValues(t, 1, c.RedeliveryCount(msg))
						require.NoError(t, c.Snooze(msg, 100*time.Millisecond))
					}
					for range n {
						msg := testkit.Receive(t, c)
						assert.EqualValues(t, 1, c.RedeliveryCount(msg))
						require.NoError(t, c.Ack(msg))
					}
					testkit.ReceiveNothing(t, c, 300*time.Millisecond)
					b.Settles(topic, 0)
					require.ErrorContains(t, c.Snooze(nil, 0), "message is nil")
				})
		})
	})
}

// On Shared and Key_Shared the broker counts this delivery.
func TestSnoozeBeyondMemoryLimitComesFromBroker(t *testing.T) {
	t.Parallel()
	testkit.Each(t, testkit.SubscriptionTypes, func(t *testing.T, kind pulsar.SubscriptionType) {
		b := testkit.NewBroker(t)
		topic := b.NewTopic(0)
		c := b.Subscribe(b.Options(topic, kind), redelivery.WithMemoryLimit(1))
		b.Send(topic, 1, false)
		msg := testkit.Receive(t, c)
		began := time.Now()
		require.NoError(t, c.Snooze(msg, 500*time.Millisecond))
		msg = testkit.Receive(t, c)
		require.GreaterOrEqual(t, time.Since(began), 500*time.Millisecond)
		counted := uint32(0)
		if kind == pulsar.Shared || kind == pulsar.KeyShared {
			counted = 1
		}
		assert.Equal(t, counted, c.RedeliveryCount(msg))
		require.NoError(t, c.Ack(msg))
		b.Settles(topic, 0)
	})
}

// Long snoozes move the messages to the retry topic.
func TestSnoozesMayExceedTheLimitOfUnackedMessages(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	if b.InProcess != nil {
		t.Skip("needs a real broker: PULSAR_URL and PULSAR_ADMIN_URL")
	}
	const n, limit, delay = 1500, 500, 10 * time.Second
	namespace := b.Namespace()
	b.Admin("POST", "namespaces/"+strings.Trim(strings.TrimPrefix(namespace, "persistent://"), "/"),
		"/maxUnackedMessagesPerConsumer", limit, nil)
	topic := namespace + "orders"
	c := b.Subscribe(b.Options(topic, pulsar.Shared), redelivery.WithReconsumeBackoff(backoff.Fixed(0)),
		redelivery.WithNackRetryTopic(time.Second))
	b.Send(topic, n, false)
	begin := time.Now()
	snoozed := map[string]time.Time{}
	for len(snoozed) < n {
		msg := testkit.Receive(t, c)
		require.Empty(t, snoozed[string(msg.Payload())], "a message came again before all were snoozed")
		snoozed[string(msg.Payload())] = time.Now()
		require.NoError(t, c.Snooze(msg, delay))
	}
	for range n {
		msg := testkit.Receive(t, c)
		require.GreaterOrEqual(t, time.Since(snoozed[string(msg.Payload())]), delay)
		require.Zero(t, c.RedeliveryCount(msg))
		require.NoError(t, c.Ack(msg))
	}
	require.Less(t, time.Since(begin), 3*delay, "the snoozes took more than one round")
	b.Settles(topic, 0)
}
