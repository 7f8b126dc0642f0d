package suite

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
)

func retryTopic(topic string) string      { return topic + "-" + sub + "-RETRY" }
func deadLetterTopic(topic string) string { return topic + "-" + sub + "-DLQ" }

// retrying are options with a retry topic.
func (b *broker) retrying(topic string, maxDeliveries uint32) pulsar.ConsumerOptions {
	opts := b.options(topic, pulsar.Shared)
	opts.RetryEnable = true
	opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: maxDeliveries}
	return opts
}

// deadLetters subscribes to the dead letters of a topic.
func (b *broker) deadLetters(topic string) pulsar.Consumer {
	c, err := b.client.Subscribe(b.options(deadLetterTopic(topic), pulsar.Exclusive))
	require.NoError(b.t, err)
	b.t.Cleanup(c.Close)
	return c
}

func next(t testing.TB, c pulsar.Consumer, within time.Duration) pulsar.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	msg, err := c.Receive(ctx)
	require.NoError(t, err)
	return msg
}

var bg = context.Background()

func TestReconsumedUntilDead(t *testing.T) {
	t.Parallel()
	each(t, map[string]bool{"with response": true, "without response": false}, func(t *testing.T, response bool) {
		t.Parallel()
		const n = 100
		b := newBroker(t)
		topic := b.topic(0)
		opts := b.retrying(topic, 2)
		opts.AckWithResponse = response
		c := b.subscribe(opts, redelivery.WithReconsumeBackoff(backoff.Fixed(ms(10))))
		dead := b.deadLetters(topic)
		b.send(topic, n, false)
		times := map[string]int{}
		for range 3 * n {
			msg := next(t, c, 10*time.Second)
			delivery := string(msg.Payload()) + " reconsumed " + msg.Properties()["RECONSUMETIMES"]
			times[delivery]++
			require.Equal(t, 1, times[delivery], delivery)
			require.NoError(t, c.ReconsumeLaterNext(bg, msg))
		}
		for range n {
			msg := next(t, dead, 10*time.Second)
			require.Equal(t, "3", msg.Properties()["RECONSUMETIMES"])
			require.Equal(t, "reconsumed 2 times", msg.Properties()["EXCEPTION_MESSAGE"])
			require.Contains(t, msg.Properties(), "DEAD_LETTER_TIME")
		}
		nothing(t, c, ms(300))
		b.settles(topic, 0)
		b.settles(retryTopic(topic), 0)
	})
}

func TestEverythingIsKeptOverRetries(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic(2)
	levels, err := backoff.ParseDelayLevels("1s 1500ms 10ms 1ms")
	require.NoError(t, err)
	c := b.subscribe(b.retrying(topic, 4), redelivery.WithReconsumeBackoff(levels))
	dead := b.deadLetters(topic)
	event := time.UnixMilli(1_700_000_000_000)
	b.publish(pulsar.ProducerOptions{Topic: topic}, &pulsar.ProducerMessage{Payload: []byte("x"), Key: "k", OrderingKey: "o", EventTime: event,
		Properties: map[string]string{"mine": "1"}})
	first := next(t, c, 5*time.Second)
	kept := func(msg pulsar.Message, level string, times int) {
		t.Helper()
		assert.Equal(t, "x", string(msg.Payload()))
		assert.Equal(t, "k", msg.Key())
		assert.Equal(t, "o", msg.OrderingKey())
		assert.True(t, event.Equal(msg.EventTime()))
		props := msg.Properties()
		for name, want := range map[string]string{"mine": "1", "added": "2", "REAL_TOPIC": topic, "REAL_SUBSCRIPTION": sub,
			"ORIGIN_MESSAGE_ID": first.ID().String(), "ORIGIN_MESSAGE_IDY_TIME": first.ID().String(),
			"RECONSUMETIMES": strconv.Itoa(times), "DELAY_LEVEL": level} {
			assert.Equal(t, want, props[name], name)
		}
	}
	require.Error(t, c.ReconsumeLaterLevel(bg, first, 5))
	begin := time.Now()
	require.NoError(t, c.ReconsumeLaterAfter(bg, first, time.Second, map[string]string{"added": "2"}))
	require.ErrorIs(t, c.ReconsumeLaterNext(bg, first), redelivery.ErrNotInFlight)
	msg := next(t, c, 5*time.Second)
	require.GreaterOrEqual(t, time.Since(begin), time.Second, "the broker alone releases it at once")
	kept(msg, "", 1)
	assert.Equal(t, "1000", msg.Properties()["DELAY_TIME"])
	begin = time.Now()
	require.NoError(t, c.ReconsumeLaterLevel(bg, msg, 2))
	msg = next(t, c, 6*time.Second)
	require.GreaterOrEqual(t, time.Since(begin), ms(1500))
	kept(msg, "2", 2)
	require.NoError(t, c.ReconsumeLaterNext(bg, msg))
	msg = next(t, c, 5*time.Second)
	kept(msg, "3", 3)
	assert.Equal(t, "10", msg.Properties()["DELAY_TIME"])
	c.ReconsumeLater(msg, 0)
	msg = next(t, c, 5*time.Second)
	kept(msg, "3", 4)
	require.NoError(t, c.ReconsumeLaterNext(bg, msg))
	kept(next(t, dead, 5*time.Second), "3", 5)
	b.settles(topic, 2)
	b.settles(retryTopic(topic), 0)
}

func TestAlwaysFailedIsDead(t *testing.T) {
	t.Parallel()
	for name, way := range ways {
		each(t, kinds, func(t *testing.T, kind pulsar.SubscriptionType) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := newBroker(t)
				topic := b.topic(0)
				opts := b.options(topic, kind)
				opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 3}
				option := way.option
				if name == "nack" { // a letter that is not published in this time comes after the others
					option = redelivery.WithNackRedeliveryDelay(time.Second)
				}
				c := b.subscribe(opts, option)
				dead := b.deadLetters(topic)
				b.send(topic, 5, kind == pulsar.Failover)
				for range 3 * 5 {
					way.fail(c, receive(t, c))
				}
				b.unload(topic)
				receiving, stop := context.WithCancel(bg)
				defer stop()
				go func() {
					if msg, err := c.Receive(receiving); err == nil {
						t.Errorf("%s was delivered more than three times", msg.Payload())
					}
				}()
				for i := range 5 {
					msg := next(t, dead, 10*time.Second)
					require.Equal(t, strconv.Itoa(i), string(msg.Payload()), "in order")
					require.Equal(t, "delivered 3 times and not acknowledged", msg.Properties()["EXCEPTION_MESSAGE"])
					require.Equal(t, "2", msg.Properties()["REDELIVERY_COUNT"])
				}
				b.settles(topic, 0)
			})
		})
	}
}

// TestPatternHasOneRetryAndOneDeadLetterTopic where none is named: upstream's, whose names have a namespace and no
// topic.
func TestPatternHasOneRetryAndOneDeadLetterTopic(t *testing.T) {
	if elsewhere(t) {
		return
	}
	b := newBroker(t)
	first, second := b.topic(0), b.topic(2)
	opts := b.options("", pulsar.Shared)
	opts.TopicsPattern = "(" + strings.TrimPrefix(first, "persistent://public/default/") + "|" +
		strings.TrimPrefix(second, "persistent://public/default/") + ")$"
	opts.SubscriptionName, opts.RetryEnable, opts.DLQ = first[len(first)-8:], true, &pulsar.DLQPolicy{MaxDeliveries: 2}
	c := b.subscribe(opts, redelivery.WithReconsumeBackoff(backoff.Fixed(ms(100))))
	b.send(first, 1, false)
	b.send(second, 3, false)
	prefix := "persistent://public/default/-" + opts.SubscriptionName
	dead := b.reader(prefix + "-DLQ")
	for range 3 {
		for range 4 {
			msg := next(t, c, 10*time.Second)
			if msg.RedeliveryCount() > 0 || msg.Properties()["RECONSUMETIMES"] != "" {
				require.Equal(t, prefix+"-RETRY", msg.Topic())
			}
			require.NoError(t, c.ReconsumeLaterNext(bg, msg))
		}
	}
	for range 4 {
		require.Contains(t, []string{first, second}, next(t, dead, 10*time.Second).Properties()["REAL_TOPIC"])
	}
	_, err := redelivery.Subscribe(b.client, pulsar.ConsumerOptions{TopicsPattern: ".*", SubscriptionName: "s", Type: pulsar.Shared,
		DLQ: &pulsar.DLQPolicy{MaxDeliveries: 2}})
	require.ErrorIs(t, err, redelivery.ErrInvalidOption)
	require.ErrorContains(t, err, "persistent://public/default/-s-DLQ")
}

func TestRetryTopicTerminated(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic(0)
	c := b.subscribe(b.retrying(topic, 9), redelivery.WithNackRedeliveryDelay(ms(100)))
	b.send(topic, 10, false)
	b.rest("POST", retryTopic(topic), "/terminate", nil, nil)
	var calls sync.WaitGroup
	for range 10 {
		msg := receive(t, c)
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(bg, 3*time.Second)
			defer cancel()
			begin := time.Now()
			assert.Error(t, c.ReconsumeLaterNext(ctx, msg))
			assert.Less(t, time.Since(begin), 4*time.Second)
		})
	}
	calls.Wait()
	require.Equal(t, 10, b.stats(topic, 0).Backlog, "nothing is acknowledged")
	require.Zero(t, c.Stats().Waiting)
	b.unload(topic) // the application still has them: copies are held
	nothing(t, c, time.Second)
}

func TestTwoTopicsOnePartitioned(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	first, second := b.topic(2), b.topic(0)
	opts := b.retrying("", 3)
	opts.Topics = []string{first, second}
	c := b.subscribe(opts, redelivery.WithReconsumeBackoff(backoff.Fixed(0)))
	b.send(first, 2, false)
	b.send(second, 2, false)
	var msgs []pulsar.Message
	for range 4 {
		msgs = append(msgs, receive(t, c))
	}
	for _, msg := range msgs {
		require.NoError(t, c.ReconsumeLaterNext(bg, msg))
	}
	real := map[string]int{}
	for range 4 {
		msg := next(t, c, 5*time.Second)
		require.Equal(t, retryTopic(first), msg.Topic())
		real[msg.Properties()["REAL_TOPIC"]]++
		require.NoError(t, c.Ack(msg))
	}
	require.Equal(t, map[string]int{first: 2, second: 2}, real)
}

func TestChunkedMessages(t *testing.T) {
	t.Parallel()
	each(t, map[string]bool{"single topic": false, "with a retry topic": true}, func(t *testing.T, retries bool) {
		t.Parallel()
		b := newBroker(t)
		topic := b.topic(0)
		opts := b.options(topic, pulsar.Shared)
		if retries {
			opts = b.retrying(topic, 5)
			opts.DLQ.ProducerOptions = pulsar.ProducerOptions{EnableChunking: true, DisableBatching: true, ChunkMaxMessageSize: 1000}
		}
		c := b.subscribe(opts, redelivery.WithNackRedeliveryDelay(ms(100)), redelivery.WithAckTimeout(ms(400)))
		payload := strings.Repeat("0123456789", 500)
		b.publish(pulsar.ProducerOptions{Topic: topic, EnableChunking: true, DisableBatching: true, ChunkMaxMessageSize: 1000},
			&pulsar.ProducerMessage{Payload: []byte(payload)})
		msg := receive(t, c)
		require.Equal(t, payload, string(msg.Payload()))
		c.Nack(msg)
		msg = receive(t, c)
		require.Equal(t, payload, string(msg.Payload()))
		require.EqualValues(t, 1, c.RedeliveryCount(msg))
		msg = receive(t, c) // timed out
		require.Equal(t, payload, string(msg.Payload()))
		require.EqualValues(t, 2, c.RedeliveryCount(msg))
		if retries {
			require.NoError(t, c.ReconsumeLaterAfter(bg, msg, 0, nil))
			msg = receive(t, c)
			require.Equal(t, payload, string(msg.Payload()))
		}
		require.NoError(t, c.Ack(msg))
		b.settles(topic, 0)
	})
}
