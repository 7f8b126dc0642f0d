package suite

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

// TestReconsumeWithoutARetryTopic publishes nothing: nobody would read it, and the broker deletes a topic that nobody
// reads.
func TestReconsumeWithoutARetryTopic(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]func(topic string) pulsar.ConsumerOptions{
		"one topic": func(topic string) pulsar.ConsumerOptions { return pulsar.ConsumerOptions{Topic: topic} },
		"pattern":   func(topic string) pulsar.ConsumerOptions { return pulsar.ConsumerOptions{TopicsPattern: topic + "$"} },
	} {
		t.Run(name, func(t *testing.T) {
			if name == "pattern" && elsewhere(t) {
				return
			}
			b := newBroker(t)
			topic := b.topic(0)
			opts := options(topic)
			opts.SubscriptionName, opts.Type, opts.DLQ = sub, pulsar.Shared, &pulsar.DLQPolicy{MaxDeliveries: 3}
			opts.SubscriptionInitialPosition = pulsar.SubscriptionPositionEarliest
			c := b.subscribe(opts, redelivery.WithNackRedeliveryDelay(ms(100)))
			b.send(topic, 1, false)
			msg := receive(t, c)
			require.ErrorIs(t, c.ReconsumeLaterNext(bg, msg), redelivery.ErrNoRetryTopic)
			require.ErrorIs(t, c.ReconsumeLaterAfter(bg, msg, time.Second, nil), redelivery.ErrNoRetryTopic)
			c.ReconsumeLater(msg, time.Hour) // which has no error to return
			require.EqualValues(t, 1, c.RedeliveryCount(receive(t, c)), "nacked instead")
			require.Error(t, admin.Call(bg, b.admin, "GET", retryTopic(topic)+"/stats", nil, nil), "no such topic")
		})
	}
}

// TestABatchIsNotDeadBecauseOfOneMessage of it, for a consumer that has not seen it before: the broker counts the
// batch, and sends the acknowledged ones of it too.
func TestABatchIsNotDeadBecauseOfOneMessage(t *testing.T) {
	t.Parallel()
	const n, bad = 10, "3"
	b := newBroker(t)
	topic := b.topic(0)
	opts := b.options(topic, pulsar.Shared)
	opts.AckWithResponse = true
	dead := b.deadLetters(topic)
	b.send(topic, n, true)
	first, err := redelivery.Subscribe(b.client, opts, redelivery.WithNackRedeliveryDelay(ms(50)),
		redelivery.WithRedeliveryFrom(redelivery.FromBroker))
	require.NoError(t, err)
	defer first.Close()
	for range n {
		if msg := receive(t, first); string(msg.Payload()) != bad {
			require.NoError(t, first.Ack(msg))
		} else {
			first.Nack(msg)
		}
	}
	for range 2 {
		msg := receive(t, first)
		require.Equal(t, bad, string(msg.Payload()))
		first.Nack(msg)
	}
	require.Equal(t, bad, string(receive(t, first).Payload()))

	opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 3}
	second := b.subscribe(opts) // before the first closes: without a consumer the broker forgets its counts
	first.Close()
	msg := receive(t, second)
	require.GreaterOrEqual(t, msg.RedeliveryCount(), uint32(3))
	none(t, dead, 2*time.Second)
}

// none asserts that a plain consumer gets nothing for d.
func none(t *testing.T, c pulsar.Consumer, d time.Duration) {
	t.Helper()
	select {
	case cm := <-c.Chan():
		t.Errorf("unexpected message %q", cm.Payload())
	case <-time.After(d):
	}
}

// TestRetriesAreNotEarlyWhereTheBrokerDelaysBadly, or not at all.
func TestRetriesAreNotEarlyWhereTheBrokerDelaysBadly(t *testing.T) {
	needsRealBroker(t, "policy for delayed delivery")
	t.Parallel()
	for name, policy := range map[string]map[string]any{
		"switched off": {"active": false, "tickTime": 1000},
		"coarse":       {"active": true, "tickTime": 8000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			namespace := fmt.Sprintf("public/delays-%08x", rand.Uint32())
			require.NoError(t, admin.Call(bg, b.admin, "PUT", "namespaces/"+namespace, nil, nil))
			require.NoError(t, admin.Call(bg, b.admin, "POST", "namespaces/"+namespace+"/delayedDelivery", policy, nil))
			topic := "persistent://" + namespace + "/t"
			b.rest("PUT", topic, "", nil, nil)
			c := b.subscribe(b.retrying(topic, 9))
			b.send(topic, 1, false)
			for _, delay := range []time.Duration{3 * time.Second, 5 * time.Second} {
				msg := receive(t, c)
				begin := time.Now()
				require.NoError(t, c.ReconsumeLaterAfter(bg, msg, delay, nil))
				again := next(t, c, 30*time.Second)
				require.GreaterOrEqual(t, time.Since(begin), delay)
				require.NoError(t, c.ReconsumeLaterAfter(bg, again, 0, nil))
			}
		})
	}
}

// TestTheLastDelayRepeats where there is a reconsume backoff and no DLQ policy, as PIP-94 has it.
func TestTheLastDelayRepeats(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic(0)
	levels, err := backoff.ParseDelayLevels("1ms 2ms 3ms")
	require.NoError(t, err)
	c := b.subscribe(b.options(topic, pulsar.Shared), redelivery.WithReconsumeBackoff(levels))
	b.send(topic, 1, false)
	for range 20 { // more than the 16 deliveries of RetryEnable alone
		require.NoError(t, c.ReconsumeLaterNext(bg, receive(t, c)))
	}
	msg := receive(t, c)
	require.Equal(t, "20", msg.Properties()["RECONSUMETIMES"])
	require.Equal(t, "3", msg.Properties()["DELAY_TIME"])
}
