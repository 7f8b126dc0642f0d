package owners

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/attempts"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// withLog returns the options of a consumer with a log and a nack delay of two seconds.
func withLog() []redelivery.Option {
	return []redelivery.Option{redelivery.WithAttemptLog(redelivery.AttemptLog{}),
		redelivery.WithNackRedeliveryDelay(2 * time.Second)}
}

// nackAll nacks n messages, waits until the log has them, and returns their due times by payload.
func nackAll(t *testing.T, c *redelivery.Consumer, n int) map[string]time.Time {
	t.Helper()
	due := map[string]time.Time{}
	for range n {
		msg := testkit.Receive(t, c)
		due[string(msg.Payload())] = time.Now().Add(2 * time.Second)
		c.Nack(msg)
	}
	require.Eventually(t, func() bool { s := c.AttemptLog().Stats(); return s.Lag == 0 && s.Records == n },
		10*time.Second, 5*time.Millisecond)
	return due
}

// ackDue receives and acknowledges messages that were nacked once, and checks that none is early.
func ackDue(t *testing.T, c *redelivery.Consumer, due map[string]time.Time) {
	t.Helper()
	for range due {
		msg := testkit.Receive(t, c)
		require.False(t, time.Now().Before(due[string(msg.Payload())]), "%s is early", msg.Payload())
		require.EqualValues(t, 1, msg.RedeliveryCount(), "%s", msg.Payload())
		require.NoError(t, c.Ack(msg))
	}
}

// The next consumer continues the counts of the failed messages. If the broker has no index acks, the settled messages
// come again as new ones.
func TestAttemptsOfHalfSettledBatchGoOn(t *testing.T) {
	t.Parallel()
	for _, indexed := range []bool{false, true} {
		for kind := range testkit.SubscriptionTypes {
			t.Run(fmt.Sprintf("%s, index acks %t", kind, indexed), func(t *testing.T) {
				t.Parallel()
				b := testkit.NewBroker(t)
				if b.InProcess != nil && indexed {
					b = testkit.NewBrokerInProcess(t, pulsar.ClientOptions{}, pulsartest.WithBatchIndexAcknowledgment())
				}
				topic := b.NewTopic(0)
				opts := b.Options(topic, testkit.SubscriptionTypes[kind])
				opts.EnableBatchIndexAcknowledgment, opts.AckWithResponse = indexed, true
				b.Send(topic, 6, true)
				c := b.Subscribe(opts, withLog()...)
				settled := map[string]bool{}
				for range 3 {
					msg := testkit.Receive(t, c)
					settled[string(msg.Payload())] = true
					require.NoError(t, c.Ack(msg))
				}
				due := nackAll(t, c, 3)
				c.Close()
				c = b.Subscribe(opts, withLog()...)
				for again := map[string]bool{}; len(due) > 0 || !indexed && len(again) < 3; {
					msg := testkit.Receive(t, c)
					payload := string(msg.Payload())
					if settled[payload] {
						require.False(t, indexed, payload)
						require.Zero(t, msg.RedeliveryCount(), payload)
						again[payload] = true
					} else {
						require.False(t, time.Now().Before(due[payload]), "%s is early", payload)
						require.EqualValues(t, 1, msg.RedeliveryCount(), payload)
						delete(due, payload)
					}
					require.NoError(t, c.Ack(msg))
				}
				b.Settles(topic, 0)
			})
		}
	}
}

func TestAttemptsMoveWithTheirKey(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	opts := b.Options(topic, pulsar.KeyShared)
	b.Send(topic, 8, false)
	a := b.Subscribe(opts, withLog()...)
	due := nackAll(t, a, 8)
	other := b.Subscribe(opts, withLog()...) // gets some of the keys
	a.Close()                                // so that other gets all keys
	ackDue(t, other, due)
	b.Settles(topic, 0)
}

// After an unload two consumers have one message, and both nack it. The message waits until the later of the two due
// times, whichever consumer gets it.
func TestFailuresOfTwoConsumersBothCountAndDelay(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	opts := b.Options(topic, pulsar.Shared)
	b.Send(topic, 1, false)
	first := b.Subscribe(opts, withLog()...)
	had := testkit.Receive(t, first)
	second := b.Subscribe(opts, withLog()...)
	var has pulsar.Message
	for tries := 0; has == nil; tries++ { // the broker may send the message to the same consumer again
		require.Less(t, tries, 50)
		b.Unload(topic)
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		has, _ = second.Receive(ctx)
		cancel()
	}
	key := attempts.KeyOf(had)
	knows := func(c *redelivery.Consumer, count uint32) {
		require.Eventually(t, func() bool {
			r, ok := c.AttemptLog().Find(key)
			return ok && r.Count == count
		}, 10*time.Second, 5*time.Millisecond, "count %d", count)
	}
	require.NoError(t, first.NackWithDelay(had, 500*time.Millisecond))
	knows(second, 1)
	due := time.Now().Add(4 * time.Second)
	require.NoError(t, second.NackWithDelay(has, 4*time.Second))
	knows(first, 2)
	b.Unload(topic)
	var again pulsar.Message
	for again == nil {
		require.Less(t, time.Since(due), 30*time.Second)
		for _, c := range []*redelivery.Consumer{first, second} {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			if msg, _ := c.Receive(ctx); msg != nil {
				again = msg
			}
			cancel()
		}
	}
	require.False(t, time.Now().Before(due), "early")
	require.EqualValues(t, 2, again.RedeliveryCount())
}

// Consumers without a log may run before, after and at the same time as consumers with one. If a consumer without a log
// settles a message, the message's record remains, and does no harm.
func TestAttemptsBesideConsumersWithoutLogAreKept(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	opts := b.Options(topic, pulsar.Shared)
	plain := func() *redelivery.Consumer {
		return b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(100*time.Millisecond))
	}
	b.Send(topic, 6, false)
	before := plain()
	for range 6 {
		before.Nack(testkit.Receive(t, before))
	}
	before.Close()
	a := b.Subscribe(opts, withLog()...)
	due := map[string]time.Time{}
	for range 6 { // so that the broker's counts differ
		msg := testkit.Receive(t, a)
		due[string(msg.Payload())] = time.Now().Add(2 * time.Second)
		a.Nack(msg)
	}
	require.Eventually(t, func() bool { s := a.AttemptLog().Stats(); return s.Lag == 0 && s.Records == 6 },
		10*time.Second, 5*time.Millisecond)
	a.Close()
	withoutLog := plain()
	for i := range 6 {
		msg := testkit.Receive(t, withoutLog) // comes at once, since this consumer does not know the delay
		if i < 3 {
			require.NoError(t, withoutLog.Ack(msg))
			delete(due, string(msg.Payload()))
		}
	}
	c := b.Subscribe(opts, withLog()...)
	withoutLog.Close()
	for range 3 {
		msg := testkit.Receive(t, c)
		require.False(t, time.Now().Before(due[string(msg.Payload())]), "%s is early", msg.Payload())
		require.GreaterOrEqual(t, msg.RedeliveryCount(), uint32(1))
		require.NoError(t, c.Ack(msg))
	}
	b.Settles(topic, 0)
	require.Eventually(t, func() bool { return c.AttemptLog().Stats().Records == 3 }, 10*time.Second,
		20*time.Millisecond, "the log does not have the records of the three messages settled without a log")
	c.Close()
	b.Send(topic, 3, false)
	after := plain()
	for range 3 {
		require.NoError(t, after.Ack(testkit.Receive(t, after)))
	}
	b.Settles(topic, 0)
}

// A shadow topic's messages have the ids of its source's messages.
func TestAttemptsOfShadowTopicAreItsOwn(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	if b.InProcess != nil {
		t.Skip("the broker in process has no shadow topics; set PULSAR_URL and PULSAR_ADMIN_URL")
	}
	source := b.NewTopic(0)
	shadow := b.Shadow(source)
	var consumers []*redelivery.Consumer
	subscribe := func() {
		for _, c := range consumers {
			c.Close()
		}
		consumers = nil
		for _, topic := range []string{source, shadow} {
			consumers = append(consumers, b.Subscribe(b.Options(topic, pulsar.Failover), withLog()...))
		}
	}
	subscribe()
	b.Send(source, 3, false)
	var due []map[string]time.Time
	for _, c := range consumers {
		due = append(due, nackAll(t, c, 3))
	}
	subscribe()
	ackDue(t, consumers[0], due[0])
	require.Len(t, consumers[1].AttemptLog().Records(), 3, "the shadow lost records of its own")
	ackDue(t, consumers[1], due[1])
}
