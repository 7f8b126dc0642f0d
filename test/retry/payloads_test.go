package retry

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
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// The producers of the retries and dead letters have default and other options.
func TestRetriesKeepEveryPayload(t *testing.T) {
	t.Parallel()
	large := make([]byte, 12<<20) // more than a single message may have
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
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			dead := b.SubscribeDeadLetters(topic)
			opts := b.RetryOptions(topic, 30)
			opts.DLQ.ProducerOptions = o
			c := b.Subscribe(opts)
			var sent []*pulsar.ProducerMessage
			for name, payload := range payloads {
				sent = append(sent, &pulsar.ProducerMessage{Payload: payload,
					Properties: map[string]string{"payload": name}})
			}
			b.Publish(pulsar.ProducerOptions{Topic: topic, DisableBatching: true, EnableChunking: true}, sent...)
			check := func(stage string, msg pulsar.Message) {
				want := payloads[msg.Properties()["payload"]]
				assert.Equal(t, want == nil, msg.IsNullValue(), stage)
				assert.True(t, string(want) == string(msg.Payload()), "%s: %d bytes, want %d", stage,
					len(msg.Payload()), len(want))
			}
			for stage, delay := range []time.Duration{0, time.Second} {
				var msgs []pulsar.Message
				for range sent {
					msgs = append(msgs, testkit.Receive(t, c))
					check(fmt.Sprint("reconsumed ", stage), msgs[len(msgs)-1])
				}
				for _, msg := range msgs {
					require.NoError(t, c.ReconsumeLaterAfter(context.Background(), msg, delay, nil))
				}
			}
			for range sent {
				msg := testkit.Receive(t, c)
				check("delayed", msg)
				require.NoError(t, c.DeadLetter(context.Background(), msg, errors.New("bad")))
			}
			for range sent {
				check("dead", testkit.Next(t, dead, 15*time.Second))
			}
			b.Settles(topic, 0)
		})
	}
}

// ProducerOptions allow only one producer of a topic. Retries with and without a delay are published nevertheless.
func TestExclusiveRetryProducersPublish(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	opts := b.RetryOptions(topic, 3)
	opts.DLQ.ProducerOptions.ProducerAccessMode = pulsar.ProducerAccessModeExclusive
	c := b.Subscribe(opts)
	dead := b.SubscribeDeadLetters(topic)
	b.Send(topic, 1, false)
	for _, delay := range []time.Duration{time.Second, 0, 2 * time.Second, 0} {
		require.NoError(t, c.ReconsumeLaterAfter(context.Background(), testkit.Receive(t, c), delay, nil))
	}
	testkit.Next(t, dead, 15*time.Second)
}

func TestRetryTopicThatIsAPartitionIsNotEarly(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	opts := b.RetryOptions(topic, 3)
	opts.DLQ.RetryLetterTopic = b.NewTopic(2) + "-partition-1"
	c := b.Subscribe(opts)
	b.Send(topic, 1, false)
	msg := testkit.Receive(t, c)
	begin := time.Now()
	require.NoError(t, c.ReconsumeLaterAfter(context.Background(), msg, time.Second, nil))
	require.NoError(t, c.Ack(testkit.Receive(t, c)))
	require.GreaterOrEqual(t, time.Since(begin), time.Second)
}

// Producers create the topics again, with subscriptions that keep the messages. The retry topic gets the Consumer's
// subscription, because the Consumer subscribes later, from the topic's end on. The dead letter topic gets its initial
// subscription.
func TestDeletedRetryTopicsAreMadeAgain(t *testing.T) {
	t.Parallel()
	require.True(t, publishing.InitialSubscription(&pulsar.ProducerOptions{}, ""), "upstream's option has another name")
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	opts := b.RetryOptions(topic, 30)
	opts.SubscriptionInitialPosition = pulsar.SubscriptionPositionLatest
	opts.DLQ.InitialSubscriptionName = testkit.Subscription
	c := b.Subscribe(opts)
	b.Send(topic, 4, false)
	var msgs []pulsar.Message
	for range 4 {
		msgs = append(msgs, testkit.Receive(t, c))
	}
	require.NoError(t, c.ReconsumeLaterAfter(context.Background(), msgs[0], 0, nil)) // creates the producers
	require.NoError(t, c.Ack(testkit.Receive(t, c)))
	require.NoError(t, c.DeadLetter(context.Background(), msgs[1], errors.New("bad")))

	deleted := func(topic string, publish func(context.Context) error) {
		b.Admin("DELETE", topic, "?force=true", nil, nil)
		require.Eventually(t, func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			return publish(ctx) == nil
		}, time.Minute, 100*time.Millisecond)
	}
	deleted(testkit.RetryTopic(topic),
		func(ctx context.Context) error { return c.ReconsumeLaterAfter(ctx, msgs[2], 0, nil) })
	require.NoError(t, c.Ack(testkit.Receive(t, c)))
	dlq := testkit.DeadLetterTopic(topic)
	deleted(dlq, func(ctx context.Context) error { return c.DeadLetter(ctx, msgs[3], errors.New("bad")) })
	require.GreaterOrEqual(t, b.Stats(dlq, 0).Backlog, 1)
}

// With the properties of a retry or a dead letter, or in a batch, a message that the broker accepted may be too large.
// The broker's limits differ, and encryption makes messages larger.
func TestLargestRetriesArePublishedInChunks(t *testing.T) {
	t.Parallel()
	type scene struct {
		limit     int
		below     []int // by how many bytes the payloads are below the limit
		encrypted bool
		chunked   bool
	}
	testkit.Each(t, map[string]scene{
		"limit of 5 MiB":             {limit: 5 << 20, below: []int{100, 600, 800}},
		"limit of 5 MiB, encrypted":  {limit: 5 << 20, below: []int{400, 500, 600, 700, 800}, encrypted: true},
		"limit of 1 MiB":             {limit: 1 << 20, below: []int{300, 700, 1500}},
		"limit of 512 kiB":           {limit: 512 << 10, below: []int{100, 700, 1500}},
		"limit of 512 kiB, chunked":  {limit: 512 << 10, below: []int{-1000, -300_000}, chunked: true},
		"limit of 128 kiB, and less": {limit: 128 << 10, below: []int{100, 1000, 100_000}},
	}, func(t *testing.T, s scene) {
		b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{}, pulsartest.WithMaxMessageSize(s.limit))
		topic := b.NewTopic(0)
		opts, to := b.RetryOptions(topic, 30), b.Options(testkit.DeadLetterTopic(topic), pulsar.Exclusive)
		from := pulsar.ProducerOptions{Topic: topic, DisableBatching: true, EnableChunking: s.chunked}
		if s.encrypted {
			opts.Decryption, to.Decryption = testkit.NewKeyReader().Decryption(), testkit.NewKeyReader().Decryption()
			from.Encryption, opts.DLQ.ProducerOptions.Encryption = testkit.NewKeyReader().Encryption(testkit.KeyName), testkit.NewKeyReader().Encryption(testkit.KeyName)
		}
		c, dead := b.Subscribe(opts), b.SubscribePlain(to)
		for _, below := range s.below {
			payload := make([]byte, s.limit-below) // random: compression does not help
			_, _ = rand.NewChaCha8([32]byte{}).Read(payload)
			b.Publish(from, &pulsar.ProducerMessage{Payload: payload})
			for _, delay := range []time.Duration{0, 100 * time.Millisecond} {
				require.NoError(t, c.ReconsumeLaterAfter(context.Background(), testkit.Receive(t, c), delay, nil),
					"%d below", below)
			}
			require.NoError(t, c.DeadLetter(context.Background(), testkit.Receive(t, c), errors.New("bad")), "%d below",
				below)
			letter := testkit.Next(t, dead, 15*time.Second)
			require.True(t, string(payload) == string(letter.Payload()), "%d below: %d bytes", below,
				len(letter.Payload()))
		}
		b.Settles(topic, 0)
	})
}
