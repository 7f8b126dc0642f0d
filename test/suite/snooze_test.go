package suite

import (
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
)

// A snooze is no attempt: not for the count, not for the backoff, and not for MaxDeliveries.
func TestSnoozeDoesNotCount(t *testing.T) {
	t.Parallel()
	each(t, kinds, func(t *testing.T, kind pulsar.SubscriptionType) {
		each(t, map[string]bool{"batched": true, "single": false}, func(t *testing.T, batched bool) {
			each(t, map[string][]redelivery.Option{"": nil, "from broker": {redelivery.WithRedeliveryFrom(redelivery.FromBroker)}},
				func(t *testing.T, options []redelivery.Option) {
					t.Parallel()
					b := newBroker(t)
					topic := b.topic(0)
					opts := b.options(topic, kind)
					opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 2}
					c := b.subscribe(opts, append(options, redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: ms(300)}),
						redelivery.WithAckTimeout(ms(5000)))...)
					const n = 4
					b.send(topic, n, batched)
					at := map[string]time.Time{}
					for range 5 {
						for range n {
							msg := receive(t, c)
							require.GreaterOrEqual(t, time.Since(at[string(msg.Payload())]), ms(100))
							at[string(msg.Payload())] = time.Now()
							assert.Zero(t, c.RedeliveryCount(msg))
							assert.Zero(t, msg.RedeliveryCount())
							d, err := c.Delivery(msg)
							require.NoError(t, err)
							assert.Equal(t, ms(300), d.NackDelay)
							assert.False(t, d.Last)
							require.NoError(t, c.Snooze(msg, ms(100)))
							require.NoError(t, c.Snooze(msg, time.Hour), "a second one changes nothing")
						}
					}
					for range n {
						c.Nack(receive(t, c))
					}
					for range n { // now on its last delivery, which a snooze does not end
						msg := receive(t, c)
						assert.EqualValues(t, 1, c.RedeliveryCount(msg))
						require.NoError(t, c.Snooze(msg, ms(100)))
					}
					for range n {
						msg := receive(t, c)
						assert.EqualValues(t, 1, c.RedeliveryCount(msg))
						require.NoError(t, c.Ack(msg))
					}
					nothing(t, c, ms(300))
					b.settles(topic, 0)
					require.ErrorContains(t, c.Snooze(nil, 0), "message is nil")
				})
		})
	})
}

// What does not fit the memory limit comes from the broker, which counts it on Shared and Key_Shared.
func TestSnoozeBeyondTheMemoryLimit(t *testing.T) {
	t.Parallel()
	each(t, kinds, func(t *testing.T, kind pulsar.SubscriptionType) {
		t.Parallel()
		b := newBroker(t)
		topic := b.topic(0)
		c := b.subscribe(b.options(topic, kind), redelivery.WithMemoryLimit(1))
		b.send(topic, 1, false)
		msg := receive(t, c)
		began := time.Now()
		require.NoError(t, c.Snooze(msg, ms(500)))
		msg = receive(t, c)
		require.GreaterOrEqual(t, time.Since(began), ms(500))
		counted := uint32(0)
		if kind == pulsar.Shared || kind == pulsar.KeyShared {
			counted = 1
		}
		assert.Equal(t, counted, c.RedeliveryCount(msg))
		require.NoError(t, c.Ack(msg))
		b.settles(topic, 0)
	})
}

// Where long snoozes move to the retry topic, more messages can be snoozed than the broker allows to be unacknowledged.
func TestMoreSnoozesThanMayBeUnacknowledged(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	if b.inProcess != nil {
		t.Skip("needs a real broker: PULSAR_URL and PULSAR_ADMIN_URL")
	}
	const n, limit, delay = 1500, 500, 10 * time.Second
	namespace := b.namespace()
	b.rest("POST", "namespaces/"+strings.Trim(strings.TrimPrefix(namespace, "persistent://"), "/"), "/maxUnackedMessagesPerConsumer", limit, nil)
	topic := namespace + "orders"
	c := b.subscribe(b.options(topic, pulsar.Shared), redelivery.WithReconsumeBackoff(backoff.Fixed(0)), redelivery.WithNackRetryTopic(time.Second))
	b.send(topic, n, false)
	begin := time.Now()
	snoozed := map[string]time.Time{}
	for len(snoozed) < n {
		msg := receive(t, c)
		require.Empty(t, snoozed[string(msg.Payload())], "all are snoozed before the first comes again")
		snoozed[string(msg.Payload())] = time.Now()
		require.NoError(t, c.Snooze(msg, delay))
	}
	for range n {
		msg := receive(t, c)
		require.GreaterOrEqual(t, time.Since(snoozed[string(msg.Payload())]), delay)
		require.Zero(t, c.RedeliveryCount(msg))
		require.NoError(t, c.Ack(msg))
	}
	require.Less(t, time.Since(begin), 3*delay, "one round, not three")
	b.settles(topic, 0)
}
