package retry

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// No consumer would read the retries, and the broker deletes messages of a topic without subscriptions.
func TestReconsumeWithoutRetryTopicIsRefused(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]func(topic string) pulsar.ConsumerOptions{
		"one topic": func(topic string) pulsar.ConsumerOptions { return pulsar.ConsumerOptions{Topic: topic} },
		"pattern":   func(topic string) pulsar.ConsumerOptions { return pulsar.ConsumerOptions{TopicsPattern: topic + "$"} },
	} {
		t.Run(name, func(t *testing.T) {
			if name == "pattern" && testkit.InOwnProcess(t) {
				return
			}
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			b.AwaitListed(topic)
			opts := options(topic)
			opts.SubscriptionName, opts.Type, opts.DLQ = testkit.Subscription, pulsar.Shared, &pulsar.DLQPolicy{MaxDeliveries: 3}
			opts.SubscriptionInitialPosition = pulsar.SubscriptionPositionEarliest
			c := b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(100*time.Millisecond))
			b.Send(topic, 1, false)
			msg := testkit.Receive(t, c)
			require.ErrorIs(t, c.ReconsumeLaterNext(context.Background(), msg), redelivery.ErrNoRetryTopic)
			require.ErrorIs(t, c.ReconsumeLaterAfter(context.Background(), msg, time.Second, nil),
				redelivery.ErrNoRetryTopic)
			c.ReconsumeLater(msg, time.Hour) // cannot return an error
			require.EqualValues(t, 1, c.RedeliveryCount(testkit.Receive(t, c)), "the message was not nacked instead")
			require.Error(t, admin.Call(context.Background(), b.AdminURL, "GET", testkit.RetryTopic(topic)+"/stats",
				nil, nil), "the retry topic exists")
		})
	}
}

// A new consumer gets the batch. The broker counts the deliveries of the whole batch, and also sends its acknowledged
// messages. None of the messages becomes a dead letter.
func TestBatchWithOneBadMessageIsNotDead(t *testing.T) {
	t.Parallel()
	const n, bad = 10, "3"
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	opts := b.Options(topic, pulsar.Shared)
	opts.AckWithResponse = true
	dead := b.SubscribeDeadLetters(topic)
	b.Send(topic, n, true)
	first, err := redelivery.Subscribe(b.Client, opts, redelivery.WithNackRedeliveryDelay(50*time.Millisecond),
		redelivery.WithRedeliveryFrom(redelivery.FromBroker))
	require.NoError(t, err)
	defer first.Close()
	for range n {
		if msg := testkit.Receive(t, first); string(msg.Payload()) != bad {
			require.NoError(t, first.Ack(msg))
		} else {
			first.Nack(msg)
		}
	}
	for range 2 {
		msg := testkit.Receive(t, first)
		require.Equal(t, bad, string(msg.Payload()))
		first.Nack(msg)
	}
	require.Equal(t, bad, string(testkit.Receive(t, first).Payload()))

	opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 3}
	second := b.Subscribe(opts) // before the first one closes, since without a consumer the broker forgets its counts
	first.Close()
	msg := testkit.Receive(t, second)
	require.GreaterOrEqual(t, msg.RedeliveryCount(), uint32(3))
	none(t, dead, 2*time.Second)
}

// none checks that a plain consumer gets no message for d.
func none(t *testing.T, c pulsar.Consumer, d time.Duration) {
	t.Helper()
	select {
	case cm := <-c.Chan():
		t.Errorf("unexpected message %q", cm.Payload())
	case <-time.After(d):
	}
}

// The broker delays messages only in coarse steps, or not at all.
func TestRetriesAreNotEarlyWhereTheBrokerDelaysBadly(t *testing.T) {
	testkit.NeedsRealBroker(t, "policy for delayed delivery")
	t.Parallel()
	for name, policy := range map[string]map[string]any{
		"switched off": {"active": false, "tickTime": 1000},
		"coarse":       {"active": true, "tickTime": 8000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBroker(t)
			namespace := fmt.Sprintf("public/delays-%08x", rand.Uint32())
			require.NoError(t, admin.Call(context.Background(), b.AdminURL, "PUT", "namespaces/"+namespace, nil, nil))
			require.NoError(t, admin.Call(context.Background(), b.AdminURL, "POST",
				"namespaces/"+namespace+"/delayedDelivery", policy, nil))
			topic := "persistent://" + namespace + "/t"
			b.Admin("PUT", topic, "", nil, nil)
			c := b.Subscribe(b.RetryOptions(topic, 9))
			b.Send(topic, 1, false)
			for _, delay := range []time.Duration{3 * time.Second, 5 * time.Second} {
				msg := testkit.Receive(t, c)
				begin := time.Now()
				require.NoError(t, c.ReconsumeLaterAfter(context.Background(), msg, delay, nil))
				again := testkit.Next(t, c, 30*time.Second)
				require.GreaterOrEqual(t, time.Since(begin), delay)
				require.NoError(t, c.ReconsumeLaterAfter(context.Background(), again, 0, nil))
			}
		})
	}
}

// There is a reconsume backoff and no DLQ policy, as in PIP-94.
func TestLastDelayOfLadderRepeats(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	levels, err := backoff.ParseDelayLevels("1ms 2ms 3ms")
	require.NoError(t, err)
	c := b.Subscribe(b.Options(topic, pulsar.Shared), redelivery.WithReconsumeBackoff(levels))
	b.Send(topic, 1, false)
	for range 20 { // more than the 16 deliveries of RetryEnable alone
		require.NoError(t, c.ReconsumeLaterNext(context.Background(), testkit.Receive(t, c)))
	}
	msg := testkit.Receive(t, c)
	require.Equal(t, "20", msg.Properties()["RECONSUMETIMES"])
	require.Equal(t, "3", msg.Properties()["DELAY_TIME"])
}
