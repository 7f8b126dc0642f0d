package retry

import (
	"errors"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// Messages in the retry topic are not lost: those that the application has come again.
func TestSeekWithRetryTopicResetsTheMainTopic(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]pulsar.SubscriptionType{"Shared": pulsar.Shared, "KeyShared": pulsar.KeyShared, "Exclusive": pulsar.Exclusive} {
		for how, seek := range map[string]func(*redelivery.Consumer, pulsar.MessageID) error{
			"Seek": func(c *redelivery.Consumer, first pulsar.MessageID) error { return c.Seek(first) },
			"SeekByTime": func(c *redelivery.Consumer, _ pulsar.MessageID) error {
				return c.SeekByTime(time.Now().Add(-time.Hour))
			},
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				b := testkit.NewBroker(t)
				topic := b.NewTopic(0)
				opts := b.Options(topic, kind)
				opts.RetryEnable = true
				c := b.Subscribe(opts)
				b.Send(topic, 3, false)
				wait := time.Duration(0)
				if kind != pulsar.Exclusive {
					wait = 3 * time.Second
				}
				// All messages are received before the first is reconsumed, since a retry without delay may come before
				// the next message.
				msgs := []pulsar.Message{testkit.Receive(t, c), testkit.Receive(t, c), testkit.Receive(t, c)}
				first := msgs[0].ID()
				for _, msg := range msgs {
					switch string(msg.Payload()) {
					case "0":
						require.NoError(t, c.ReconsumeLaterAfter(t.Context(), msg, wait, nil))
					case "1":
						require.NoError(t, c.ReconsumeLaterAfter(t.Context(), msg, 0, nil))
					default:
						require.NoError(t, c.Ack(msg))
					}
				}
				held := testkit.Receive(t, c)
				require.NotEqual(t, topic, held.Topic())
				require.NoError(t, seek(c, first))
				seen := map[string]int{}
				for range 5 {
					msg := testkit.Receive(t, c)
					if msg.Topic() == topic {
						seen["main "+string(msg.Payload())]++
					} else {
						seen["retry "+string(msg.Payload())]++
					}
					require.NoError(t, c.Ack(msg))
				}
				require.Equal(t, map[string]int{"main 0": 1, "main 1": 1, "main 2": 1, "retry 0": 1, "retry 1": 1},
					seen)
				testkit.ReceiveNothing(t, c, time.Second)
				b.Settles(topic, 0)
			})
		}
	}
}

// Seek subscribes to the main topic with the caller's options, which pulsar-client-go would fill in.
func TestSeekWithRetryTopicLeavesTheCallersDecryptionAlone(t *testing.T) {
	t.Parallel()
	b, k := testkit.NewBroker(t), testkit.NewKeyReader()
	topic := b.NewTopic(0)
	opts := b.Options(topic, pulsar.Shared)
	opts.RetryEnable, opts.Decryption = true, k.Decryption()
	opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 3,
		ProducerOptions: pulsar.ProducerOptions{Encryption: k.Encryption(testkit.KeyName)}}
	c := b.Subscribe(opts)
	require.NoError(t, c.SeekByTime(time.Now().Add(-time.Hour)))
	require.Nil(t, opts.Decryption.MessageCrypto)
}

// The error says that the seek is impossible.
func TestSeekOfTwoTopicsWithRetryTopicIsRefused(t *testing.T) {
	b := testkit.NewBroker(t)
	opts := b.Options("", pulsar.Shared)
	opts.Topics = []string{b.NewTopic(0), b.NewTopic(0)}
	c := b.Subscribe(opts, redelivery.WithReconsumeBackoff(backoff.Fixed(0)))
	require.ErrorIs(t, c.Seek(pulsar.EarliestMessageID()), errors.ErrUnsupported)
	require.ErrorIs(t, c.SeekByTime(time.Now()), errors.ErrUnsupported)
}
