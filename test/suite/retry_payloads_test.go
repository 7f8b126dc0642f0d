package suite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"
)

// TestRetriesOfEveryPayload compares what comes back and what becomes a dead letter with what was sent, by default
// options and with others.
func TestRetriesOfEveryPayload(t *testing.T) {
	t.Parallel()
	large := make([]byte, 12<<20) // more than a message can have
	_, _ = rand.NewChaCha8([32]byte{}).Read(large)
	payloads := map[string][]byte{"null": nil, "empty": {}, "small": []byte("x"), "large": large}
	for name, o := range map[string]pulsar.ProducerOptions{
		"defaults":    {},
		"no batches":  {DisableBatching: true},
		"compression": {CompressionType: pulsar.ZSTD},
		"named":       {Name: fmt.Sprintf("mine-%08x", rand.Uint32())},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			topic := b.topic(0)
			dead := b.deadLetters(topic)
			opts := b.retrying(topic, 30)
			opts.DLQ.ProducerOptions = o
			c := b.subscribe(opts)
			var sent []*pulsar.ProducerMessage
			for name, payload := range payloads {
				sent = append(sent, &pulsar.ProducerMessage{Payload: payload, Properties: map[string]string{"payload": name}})
			}
			b.publish(pulsar.ProducerOptions{Topic: topic, DisableBatching: true, EnableChunking: true}, sent...)
			check := func(stage string, msg pulsar.Message) {
				want := payloads[msg.Properties()["payload"]]
				assert.Equal(t, want == nil, msg.IsNullValue(), stage)
				assert.True(t, string(want) == string(msg.Payload()), "%s: %d bytes, want %d", stage, len(msg.Payload()), len(want))
			}
			for stage, delay := range []time.Duration{0, time.Second} {
				var msgs []pulsar.Message
				for range sent {
					msgs = append(msgs, receive(t, c))
					check(fmt.Sprint("reconsumed ", stage), msgs[len(msgs)-1])
				}
				for _, msg := range msgs {
					require.NoError(t, c.ReconsumeLaterAfter(bg, msg, delay, nil))
				}
			}
			for range sent {
				msg := receive(t, c)
				check("delayed", msg)
				require.NoError(t, c.DeadLetter(bg, msg, errors.New("bad")))
			}
			for range sent {
				check("dead", next(t, dead, 15*time.Second))
			}
			b.settles(topic, 0)
		})
	}
}

// TestExclusiveRetryProducer has options that allow but one producer of a topic.
func TestExclusiveRetryProducer(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic(0)
	opts := b.retrying(topic, 3)
	opts.DLQ.ProducerOptions.ProducerAccessMode = pulsar.ProducerAccessModeExclusive
	c := b.subscribe(opts)
	dead := b.deadLetters(topic)
	b.send(topic, 1, false)
	for _, delay := range []time.Duration{time.Second, 0, 2 * time.Second, 0} {
		require.NoError(t, c.ReconsumeLaterAfter(bg, receive(t, c), delay, nil))
	}
	next(t, dead, 15*time.Second)
}

// TestRetryTopicIsAPartition of a topic: its retries are not early either.
func TestRetryTopicIsAPartition(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic(0)
	opts := b.retrying(topic, 3)
	opts.DLQ.RetryLetterTopic = b.topic(2) + "-partition-1"
	c := b.subscribe(opts)
	b.send(topic, 1, false)
	msg := receive(t, c)
	begin := time.Now()
	require.NoError(t, c.ReconsumeLaterAfter(bg, msg, time.Second, nil))
	require.NoError(t, c.Ack(receive(t, c)))
	require.GreaterOrEqual(t, time.Since(begin), time.Second)
}

// TestTopicsDeletedUnderTheirProducers are made again by these, and with them the subscriptions that keep what is
// published: the Consumer's, which subscribes again at the end, and the initial one of dead letters.
func TestTopicsDeletedUnderTheirProducers(t *testing.T) {
	t.Parallel()
	require.True(t, publishing.InitialSubscription(&pulsar.ProducerOptions{}, ""), "upstream's option has another name")
	b := newBroker(t)
	topic := b.topic(0)
	opts := b.retrying(topic, 30)
	opts.SubscriptionInitialPosition = pulsar.SubscriptionPositionLatest
	opts.DLQ.InitialSubscriptionName = sub
	c := b.subscribe(opts)
	b.send(topic, 4, false)
	var msgs []pulsar.Message
	for range 4 {
		msgs = append(msgs, receive(t, c))
	}
	require.NoError(t, c.ReconsumeLaterAfter(bg, msgs[0], 0, nil)) // there are producers
	require.NoError(t, c.Ack(receive(t, c)))
	require.NoError(t, c.DeadLetter(bg, msgs[1], errors.New("bad")))

	deleted := func(topic string, publish func(context.Context) error) {
		b.rest("DELETE", topic, "?force=true", nil, nil)
		require.Eventually(t, func() bool {
			ctx, cancel := context.WithTimeout(bg, 10*time.Second)
			defer cancel()
			return publish(ctx) == nil
		}, time.Minute, ms(100))
	}
	deleted(retryTopic(topic), func(ctx context.Context) error { return c.ReconsumeLaterAfter(ctx, msgs[2], 0, nil) })
	require.NoError(t, c.Ack(receive(t, c)))
	dlq := deadLetterTopic(topic)
	deleted(dlq, func(ctx context.Context) error { return c.DeadLetter(ctx, msgs[3], errors.New("bad")) })
	require.GreaterOrEqual(t, b.stats(dlq, 0).Backlog, 1)
}
