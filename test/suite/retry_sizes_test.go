package suite

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// What the broker has taken as one message may be too large with the properties of a retry or a dead letter, and for a
// batch. It is published in chunks then, whatever the broker's limit is, and with what encryption adds.
func TestRetriesAsLargeAsTheBrokerAllows(t *testing.T) {
	t.Parallel()
	type scene struct {
		limit     int
		below     []int // how far below the limit payloads are
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
		t.Parallel()
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
			payload := make([]byte, s.limit-below) // which compresses to no less
			_, _ = rand.NewChaCha8([32]byte{}).Read(payload)
			b.Publish(from, &pulsar.ProducerMessage{Payload: payload})
			for _, delay := range []time.Duration{0, 100 * time.Millisecond} {
				require.NoError(t, c.ReconsumeLaterAfter(context.Background(), testkit.Receive(t, c), delay, nil), "%d below", below)
			}
			require.NoError(t, c.DeadLetter(context.Background(), testkit.Receive(t, c), errors.New("bad")), "%d below", below)
			letter := testkit.Next(t, dead, 15*time.Second)
			require.True(t, string(payload) == string(letter.Payload()), "%d below: %d bytes", below, len(letter.Payload()))
		}
		b.Settles(topic, 0)
	})
}
