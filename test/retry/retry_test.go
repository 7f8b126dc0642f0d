package retry

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

func TestReconsumedMessageIsDeadLetterAtItsLimit(t *testing.T) {
	t.Parallel()
	testkit.Each(t, map[string]bool{"with response": true, "without response": false},
		func(t *testing.T, response bool) {
			const n = 100
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			opts := b.RetryOptions(topic, 2)
			opts.AckWithResponse = response
			c := b.Subscribe(opts, redelivery.WithReconsumeBackoff(backoff.Fixed(10*time.Millisecond)))
			dead := b.SubscribeDeadLetters(topic)
			b.Send(topic, n, false)
			times := map[string]int{}
			for range 3 * n {
				msg := testkit.Next(t, c, 10*time.Second)
				delivery := string(msg.Payload()) + " reconsumed " + msg.Properties()["RECONSUMETIMES"]
				times[delivery]++
				require.Equal(t, 1, times[delivery], delivery)
				require.NoError(t, c.ReconsumeLaterNext(context.Background(), msg))
			}
			for range n {
				msg := testkit.Next(t, dead, 10*time.Second)
				require.Equal(t, "3", msg.Properties()["RECONSUMETIMES"])
				require.Equal(t, "reconsumed 2 times", msg.Properties()["EXCEPTION_MESSAGE"])
				require.Contains(t, msg.Properties(), "DEAD_LETTER_TIME")
			}
			testkit.ReceiveNothing(t, c, 300*time.Millisecond)
			b.Settles(topic, 0)
			b.Settles(testkit.RetryTopic(topic), 0)
		})
}

func TestRetriesKeepKeysAndProperties(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(2)
	levels, err := backoff.ParseDelayLevels("1s 1500ms 10ms 1ms")
	require.NoError(t, err)
	c := b.Subscribe(b.RetryOptions(topic, 4), redelivery.WithReconsumeBackoff(levels))
	dead := b.SubscribeDeadLetters(topic)
	event := time.UnixMilli(1_700_000_000_000)
	b.Publish(pulsar.ProducerOptions{Topic: topic},
		&pulsar.ProducerMessage{Payload: []byte("x"), Key: "k", OrderingKey: "o", EventTime: event,
			Properties: map[string]string{"mine": "1"}})
	first := testkit.Next(t, c, waittest.Limit)
	kept := func(msg pulsar.Message, level string, times int) {
		t.Helper()
		assert.Equal(t, "x", string(msg.Payload()))
		assert.Equal(t, "k", msg.Key())
		assert.Equal(t, "o", msg.OrderingKey())
		assert.True(t, event.Equal(msg.EventTime()))
		props := msg.Properties()
		for name, want := range map[string]string{"mine": "1", "added": "2", "REAL_TOPIC": topic, "REAL_SUBSCRIPTION": testkit.Subscription,
			"ORIGIN_MESSAGE_ID": first.ID().String(), "ORIGIN_MESSAGE_IDY_TIME": first.ID().String(),
			"RECONSUMETIMES": strconv.Itoa(times), "DELAY_LEVEL": level} {
			assert.Equal(t, want, props[name], name)
		}
	}
	require.Error(t, c.ReconsumeLaterLevel(context.Background(), first, 5))
	begin := time.Now()
	require.NoError(t, c.ReconsumeLaterAfter(context.Background(), first, time.Second, map[string]string{"added": "2"}))
	require.ErrorIs(t, c.ReconsumeLaterNext(context.Background(), first), redelivery.ErrNotInFlight)
	msg := testkit.Next(t, c, waittest.Limit)
	// The broker alone would release the retry at once.
	require.GreaterOrEqual(t, time.Since(begin), time.Second, "the retry came early")
	kept(msg, "", 1)
	assert.Equal(t, "1000", msg.Properties()["DELAY_TIME"])
	begin = time.Now()
	require.NoError(t, c.ReconsumeLaterLevel(context.Background(), msg, 2))
	msg = testkit.Next(t, c, waittest.Limit)
	require.GreaterOrEqual(t, time.Since(begin), 1500*time.Millisecond)
	kept(msg, "2", 2)
	require.NoError(t, c.ReconsumeLaterNext(context.Background(), msg))
	msg = testkit.Next(t, c, waittest.Limit)
	kept(msg, "3", 3)
	assert.Equal(t, "10", msg.Properties()["DELAY_TIME"])
	c.ReconsumeLater(msg, 0)
	msg = testkit.Next(t, c, waittest.Limit)
	kept(msg, "3", 4)
	require.NoError(t, c.ReconsumeLaterNext(context.Background(), msg))
	kept(testkit.Next(t, dead, waittest.Limit), "3", 5)
	b.Settles(topic, 2)
	b.Settles(testkit.RetryTopic(topic), 0)
}

func TestFailingMessageIsDeadLetterAtItsLimit(t *testing.T) {
	t.Parallel()
	for name, way := range testkit.Ways(300 * time.Millisecond) {
		testkit.Each(t, testkit.SubscriptionTypes, func(t *testing.T, kind pulsar.SubscriptionType) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := testkit.NewBroker(t)
				topic := b.NewTopic(0)
				opts := b.Options(topic, kind)
				opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 3}
				option := way.Option
				if name != "ack timeout" { // a letter whose publication takes longer than the delay comes after the others
					option = redelivery.WithNackRedeliveryBackoff(backoff.DelayLevels{time.Second, time.Second, time.Minute})
				}
				c := b.Subscribe(opts, option)
				dead := b.SubscribeDeadLetters(topic)
				b.Send(topic, 5, kind == pulsar.Failover)
				for range 3 * 5 {
					way.Fail(c, testkit.Receive(t, c))
				}
				b.Unload(topic)
				receiving, stop := context.WithCancel(t.Context())
				defer stop()
				go func() {
					if msg, err := c.Receive(receiving); err == nil {
						t.Errorf("%s was delivered more than three times", msg.Payload())
					}
				}()
				for i := range 5 {
					msg := testkit.Next(t, dead, 10*time.Second)
					require.Equal(t, strconv.Itoa(i), string(msg.Payload()), "dead letters are out of order")
					require.Equal(t, "delivered 3 times and not acknowledged", msg.Properties()["EXCEPTION_MESSAGE"])
					require.Equal(t, "2", msg.Properties()["REDELIVERY_COUNT"])
				}
				b.Settles(topic, 0)
			})
		})
	}
}

// Upstream's default names of these topics have the namespace and the subscription, but no topic.
func TestPatternHasOneRetryAndOneDeadLetterTopic(t *testing.T) {
	if testkit.InOwnProcess(t) {
		return
	}
	b := testkit.NewBroker(t)
	first, second := b.NewTopic(0), b.NewTopic(2)
	for _, topic := range append(testkit.PartitionsOf(second, 2), first) {
		b.AwaitListed(topic)
	}
	opts := b.Options("", pulsar.Shared)
	opts.TopicsPattern = "(" + strings.TrimPrefix(first, "persistent://public/default/") + "|" +
		strings.TrimPrefix(second, "persistent://public/default/") + ")$"
	opts.SubscriptionName, opts.RetryEnable, opts.DLQ = first[len(first)-8:], true, &pulsar.DLQPolicy{MaxDeliveries: 2}
	c := b.Subscribe(opts, redelivery.WithReconsumeBackoff(backoff.Fixed(100*time.Millisecond)))
	b.Send(first, 1, false)
	b.Send(second, 3, false)
	prefix := "persistent://public/default/-" + opts.SubscriptionName
	dead := subscribeReader(b, prefix+"-DLQ")
	for range 3 {
		for range 4 {
			msg := testkit.Next(t, c, 10*time.Second)
			if msg.RedeliveryCount() > 0 || msg.Properties()["RECONSUMETIMES"] != "" {
				require.Equal(t, prefix+"-RETRY", msg.Topic())
			}
			require.NoError(t, c.ReconsumeLaterNext(context.Background(), msg))
		}
	}
	for range 4 {
		require.Contains(t, []string{first, second}, testkit.Next(t, dead, 10*time.Second).Properties()["REAL_TOPIC"])
	}
	_, err := redelivery.Subscribe(b.Client,
		pulsar.ConsumerOptions{TopicsPattern: ".*", SubscriptionName: "s", Type: pulsar.Shared,
			DLQ: &pulsar.DLQPolicy{MaxDeliveries: 2}})
	require.ErrorIs(t, err, redelivery.ErrInvalidOption)
	require.ErrorContains(t, err, "persistent://public/default/-s-DLQ")
}

func TestTerminatedRetryTopicFailsReconsume(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	c := b.Subscribe(b.RetryOptions(topic, 9), redelivery.WithNackRedeliveryDelay(100*time.Millisecond))
	b.Send(topic, 10, false)
	b.Admin("POST", testkit.RetryTopic(topic), "/terminate", nil, nil)
	var calls sync.WaitGroup
	for range 10 {
		msg := testkit.Receive(t, c)
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			defer cancel()
			begin := time.Now()
			assert.Error(t, c.ReconsumeLaterNext(ctx, msg))
			assert.Less(t, time.Since(begin), 15*time.Second)
		})
	}
	calls.Wait()
	require.Equal(t, 10, b.Stats(topic, 0).Backlog, "messages were acknowledged although their retries failed")
	require.Zero(t, c.Stats().Waiting)
	b.Unload(topic) // the Consumer delivers no copies, since the application still has the messages
	testkit.ReceiveNothing(t, c, time.Second)
}

func TestRetriesOfPartitionedAndPlainTopicComeBack(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	first, second := b.NewTopic(2), b.NewTopic(0)
	opts := b.RetryOptions("", 3)
	opts.Topics = []string{first, second}
	c := b.Subscribe(opts, redelivery.WithReconsumeBackoff(backoff.Fixed(0)))
	b.Send(first, 2, false)
	b.Send(second, 2, false)
	var msgs []pulsar.Message
	for range 4 {
		msgs = append(msgs, testkit.Receive(t, c))
	}
	for _, msg := range msgs {
		require.NoError(t, c.ReconsumeLaterNext(context.Background(), msg))
	}
	real := map[string]int{}
	for range 4 {
		msg := testkit.Next(t, c, waittest.Limit)
		require.Equal(t, testkit.RetryTopic(first), msg.Topic())
		real[msg.Properties()["REAL_TOPIC"]]++
		require.NoError(t, c.Ack(msg))
	}
	require.Equal(t, map[string]int{first: 2, second: 2}, real)
}

func TestChunkedMessagesAreRetried(t *testing.T) {
	t.Parallel()
	testkit.Each(t, map[string]bool{"single topic": false, "with a retry topic": true},
		func(t *testing.T, retries bool) {
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			opts := b.Options(topic, pulsar.Shared)
			if retries {
				opts = b.RetryOptions(topic, 5)
				opts.DLQ.ProducerOptions = pulsar.ProducerOptions{EnableChunking: true, DisableBatching: true,
					ChunkMaxMessageSize: 1000}
			}
			c := b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(100*time.Millisecond),
				redelivery.WithAckTimeout(400*time.Millisecond))
			payload := strings.Repeat("0123456789", 500)
			b.Publish(pulsar.ProducerOptions{Topic: topic, EnableChunking: true, DisableBatching: true,
				ChunkMaxMessageSize: 1000},
				&pulsar.ProducerMessage{Payload: []byte(payload)})
			msg := testkit.Receive(t, c)
			require.Equal(t, payload, string(msg.Payload()))
			c.Nack(msg)
			msg = testkit.Receive(t, c)
			require.Equal(t, payload, string(msg.Payload()))
			require.EqualValues(t, 1, c.RedeliveryCount(msg))
			msg = testkit.Receive(t, c) // delivered again after the ack timeout
			require.Equal(t, payload, string(msg.Payload()))
			require.EqualValues(t, 2, c.RedeliveryCount(msg))
			if retries {
				require.NoError(t, c.ReconsumeLaterAfter(context.Background(), msg, 0, nil))
				msg = testkit.Receive(t, c)
				require.Equal(t, payload, string(msg.Payload()))
			}
			require.NoError(t, c.Ack(msg))
			b.Settles(topic, 0)
		})
}
