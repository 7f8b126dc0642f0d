package suite

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/pulsartest"
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
	each(t, map[string]scene{
		"limit of 5 MiB":             {limit: 5 << 20, below: []int{100, 600, 800}},
		"limit of 5 MiB, encrypted":  {limit: 5 << 20, below: []int{400, 500, 600, 700, 800}, encrypted: true},
		"limit of 1 MiB":             {limit: 1 << 20, below: []int{300, 700, 1500}},
		"limit of 512 kiB":           {limit: 512 << 10, below: []int{100, 700, 1500}},
		"limit of 512 kiB, chunked":  {limit: 512 << 10, below: []int{-1000, -300_000}, chunked: true},
		"limit of 128 kiB, and less": {limit: 128 << 10, below: []int{100, 1000, 100_000}},
	}, func(t *testing.T, s scene) {
		t.Parallel()
		b := newInProcess(t, pulsar.ClientOptions{}, pulsartest.WithMaxMessageSize(s.limit))
		topic := b.topic(0)
		opts, to := b.retrying(topic, 30), b.options(deadLetterTopic(topic), pulsar.Exclusive)
		from := pulsar.ProducerOptions{Topic: topic, DisableBatching: true, EnableChunking: s.chunked}
		if s.encrypted {
			opts.Decryption, to.Decryption = keys.decryption(), keys.decryption()
			from.Encryption, opts.DLQ.ProducerOptions.Encryption = keys.encryption(keyName), keys.encryption(keyName)
		}
		c, dead := b.subscribe(opts), b.plain(to)
		for _, below := range s.below {
			payload := make([]byte, s.limit-below) // which compresses to no less
			_, _ = rand.NewChaCha8([32]byte{}).Read(payload)
			b.publish(from, &pulsar.ProducerMessage{Payload: payload})
			for _, delay := range []time.Duration{0, ms(100)} {
				require.NoError(t, c.ReconsumeLaterAfter(bg, receive(t, c), delay, nil), "%d below", below)
			}
			require.NoError(t, c.DeadLetter(bg, receive(t, c), errors.New("bad")), "%d below", below)
			letter := next(t, dead, 15*time.Second)
			require.True(t, string(payload) == string(letter.Payload()), "%d below: %d bytes", below, len(letter.Payload()))
		}
		b.settles(topic, 0)
	})
}
