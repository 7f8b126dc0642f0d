package suite

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
)

// reader is the keys for one test.
func reader() keyReader {
	k := keys
	k.found, k.asked = new(atomic.Bool), new(atomic.Int32)
	return k
}

// sendAmong publishes "0" … "6", of which "3" needs the lost key.
func (b *broker) sendAmong(k keyReader, topic string) {
	b.t.Helper()
	for i := range 7 {
		opts := pulsar.ProducerOptions{Topic: topic, DisableBatching: true, Encryption: k.encryption(keyName)}
		if i == 3 {
			opts.Encryption = k.encryption(lostKeyName)
		}
		b.publish(opts, &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(i))})
	}
}

// good receives and acknowledges all but "3".
func good(t testing.TB, c *redelivery.Consumer) {
	t.Helper()
	for _, i := range []int{0, 1, 2, 4, 5, 6} {
		msg := patiently(t, c)
		require.Equal(t, fmt.Sprint(i), string(msg.Payload()))
		require.NoError(t, c.Ack(msg))
	}
}

var cryptoKinds = map[string]func(*broker, *pulsar.ConsumerOptions){
	"Shared":    func(*broker, *pulsar.ConsumerOptions) {},
	"Exclusive": func(_ *broker, o *pulsar.ConsumerOptions) { o.Type = pulsar.Exclusive },
	"multi-topic": func(b *broker, o *pulsar.ConsumerOptions) {
		o.Topic, o.Topics = "", []string{o.Topic, b.topic(0)}
	},
}

// Upstream nacks it by itself, without end; nobody can, so the policy holds for it as for any other.
func TestUndecryptableComesBackByPolicy(t *testing.T) {
	t.Parallel()
	each(t, cryptoKinds, func(t *testing.T, adjust func(*broker, *pulsar.ConsumerOptions)) {
		t.Parallel()
		b, k := newBroker(t), reader()
		topic := b.topic(0)
		opts := b.options(topic, pulsar.Shared)
		opts.Decryption = k.decryption()
		adjust(b, &opts)
		policy := backoff.Exponential{Min: ms(200), Max: time.Minute, Multiplier: 2} // after 0.2, 0.6, 1.4 and 3.0 s
		c := b.subscribe(opts, redelivery.WithNackRedeliveryBackoff(policy))
		begin := time.Now()
		b.sendAmong(k, topic)
		good(t, c)
		for k.asked.Load() < 4 {
			nothing(t, c, ms(100))
		}
		require.GreaterOrEqual(t, time.Since(begin), ms(1400), "early")
		nothing(t, c, ms(500))
		if time.Since(begin) < 3*time.Second {
			require.EqualValues(t, 4, k.asked.Load())
		}
		if opts.Type == pulsar.Shared {
			require.EqualValues(t, 6+k.asked.Load(), b.stats(topic, 0).Out)
		}
		k.found.Store(true)
		msg := patiently(t, c)
		require.Equal(t, "3", string(msg.Payload()))
		require.EqualValues(t, k.asked.Load()-1, c.RedeliveryCount(msg))
		require.NoError(t, c.Ack(msg))
		b.settles(topic, 0)
	})
}

// encryptedDeadLetters subscribes to a topic whose messages are encrypted, as their dead letters are after two
// deliveries, and to these.
func (b *broker) encryptedDeadLetters(k keyReader, topic string, options ...redelivery.Option) (c *redelivery.Consumer, dead pulsar.Consumer) {
	b.t.Helper()
	opts := b.options(topic, pulsar.Shared)
	opts.Decryption = k.decryption()
	opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 2, ProducerOptions: pulsar.ProducerOptions{Encryption: k.encryption(keyName)}}
	c = b.subscribe(opts, options...)
	deadOpts := b.options(deadLetterTopic(topic), pulsar.Exclusive)
	deadOpts.Decryption = k.decryption()
	dead, err := b.client.Subscribe(deadOpts)
	require.NoError(b.t, err)
	b.t.Cleanup(dead.Close)
	return c, dead
}

// It counts as delivered, but no copy goes to the dead letters that could be read by whoever has no key.
func TestUndecryptableIsADeadLetterOnceItIsDecrypted(t *testing.T) {
	t.Parallel()
	b, k := newBroker(t), reader()
	topic := b.topic(0)
	c, dead := b.encryptedDeadLetters(k, topic, redelivery.WithNackRedeliveryDelay(ms(200)))
	b.sendAmong(k, topic)
	good(t, c)
	for k.asked.Load() < 4 {
		nothing(t, c, ms(100))
	}
	require.Equal(t, 1, b.stats(topic, 0).Backlog)
	k.found.Store(true)
	nothing(t, c, time.Second)
	require.Equal(t, "3", string(next(t, dead, patience).Payload()))
	b.settles(topic, 0)
}

// Early copies are held, and the application cannot read them any more than the others.
func TestUndecryptableWhileTheTopicIsUnloaded(t *testing.T) {
	t.Parallel()
	b, k := newBroker(t), reader()
	topic := b.topic(0)
	opts := b.options(topic, pulsar.Shared)
	opts.Decryption, opts.AckWithResponse = k.decryption(), true // or an acknowledgement may be lost with the topic
	c := b.subscribe(opts, redelivery.WithNackRedeliveryDelay(2*time.Second))
	b.sendAmong(k, topic)
	good(t, c)
	goodAgain := func(d time.Duration) { // the broker may forget an acknowledgement that it has answered, when it unloads
		ctx, cancel := context.WithTimeout(bg, d)
		defer cancel()
		for {
			msg, err := c.Receive(ctx)
			if err != nil {
				return
			}
			require.NotEqual(t, "3", string(msg.Payload()))
			require.NoError(t, c.Ack(msg))
		}
	}
	for c.Stats().Dropped == 0 {
		b.unload(topic)
		goodAgain(time.Second)
	}
	goodAgain(2 * time.Second) // the copy is due
	k.found.Store(true)
	msg := patiently(t, c)
	require.Equal(t, "3", string(msg.Payload()))
	require.NoError(t, c.Ack(msg))
	b.settles(topic, 0)
}

// A zero-queue consumer does not tell what it could not decrypt, and would end the program.
func TestUndecryptableWithoutQueue(t *testing.T) {
	t.Parallel()
	b, k := newBroker(t), reader()
	topic := b.topic(0)
	opts := b.options(topic, pulsar.Shared)
	opts.EnableZeroQueueConsumer = true
	opts.Decryption = k.decryption()
	opts.Decryption.ConsumerCryptoFailureAction = crypto.ConsumerCryptoFailureActionConsume
	_, err := redelivery.Subscribe(b.client, opts)
	require.ErrorIs(t, err, redelivery.ErrInvalidOption)
	require.ErrorContains(t, err, "want another with EnableZeroQueueConsumer")

	opts.Decryption.ConsumerCryptoFailureAction = crypto.ConsumerCryptoFailureActionFail
	var log logtest.Buffer
	c := b.subscribe(opts, logTo(&log), redelivery.WithNackRedeliveryDelay(ms(100)))
	b.sendAmong(k, topic)
	good(t, c)
	nothing(t, c, ms(500))
	require.EqualValues(t, 1, k.asked.Load())
	require.EqualValues(t, 1, c.Stats().Failed)
	require.Contains(t, log.String(), "cannot be decrypted: it stays at the broker until the consumer reconnects")
	k.found.Store(true)
	b.unload(topic)
	msg := patiently(t, c)
	require.Equal(t, "3", string(msg.Payload()))
	require.NoError(t, c.Ack(msg))
	b.settles(topic, 0)
}

// Without Decryption every encrypted message is one that nobody can decrypt.
func TestUndecryptableWithoutDecryption(t *testing.T) {
	t.Parallel()
	b, k := newBroker(t), reader()
	topic := b.topic(0)
	c := b.subscribe(b.options(topic, pulsar.Shared), redelivery.WithNackRedeliveryDelay(ms(500)))
	b.sendAmong(k, topic)
	b.send(topic, 3, true)
	begin := time.Now()
	for i := range 3 {
		msg := receive(t, c)
		require.Equal(t, fmt.Sprint(i), string(msg.Payload()))
		require.NoError(t, c.Ack(msg))
	}
	nothing(t, c, time.Second)
	runs := 1 + int(time.Since(begin)/ms(500))
	require.LessOrEqual(t, b.stats(topic, 0).Out, 3+7*(runs+1))
	require.Eventually(t, func() bool { return b.stats(topic, 0).Backlog == 7 }, 5*time.Second, ms(50))
}

func TestCryptoFailureActions(t *testing.T) {
	t.Parallel()
	each(t, map[string]int{"consume": crypto.ConsumerCryptoFailureActionConsume, "discard": crypto.ConsumerCryptoFailureActionDiscard},
		func(t *testing.T, action int) {
			t.Parallel()
			b, k := newBroker(t), reader()
			topic := b.topic(0)
			opts := b.options(topic, pulsar.Shared)
			opts.Decryption = k.decryption()
			opts.Decryption.ConsumerCryptoFailureAction = action
			c := b.subscribe(opts, redelivery.WithNackRedeliveryDelay(ms(200)))
			b.sendAmong(k, topic)
			if action == crypto.ConsumerCryptoFailureActionDiscard {
				good(t, c)
				nothing(t, c, ms(500))
				b.settles(topic, 0)
				require.EqualValues(t, 1, k.asked.Load())
				return
			}
			var due time.Time
			undecrypted := uint32(0)
			for range 7 + 1 {
				msg := receive(t, c)
				if msg.GetEncryptionContext() != nil {
					require.False(t, time.Now().Before(due), "early")
					require.Equal(t, undecrypted, c.RedeliveryCount(msg))
					undecrypted++
					if undecrypted == 1 {
						due = time.Now().Add(ms(200))
						c.Nack(msg)
						continue
					}
				}
				require.NoError(t, c.Ack(msg))
			}
			require.EqualValues(t, 2, undecrypted)
			b.settles(topic, 0)
		})
}

// TestUndecryptedIsNoDeadLetter: published with other keys, or none, it would be lost.
func TestUndecryptedIsNoDeadLetter(t *testing.T) {
	t.Parallel()
	b, k := newBroker(t), reader()
	topic := b.topic(0)
	opts := b.options(topic, pulsar.Shared)
	opts.Decryption = k.decryption()
	opts.Decryption.ConsumerCryptoFailureAction = crypto.ConsumerCryptoFailureActionConsume
	opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 2, ProducerOptions: pulsar.ProducerOptions{Encryption: k.encryption(keyName)}}
	c := b.subscribe(opts, redelivery.WithNackRedeliveryDelay(ms(100)))
	b.sendAmong(k, topic)
	for range 7 + 1 {
		if msg := receive(t, c); msg.GetEncryptionContext() == nil {
			require.NoError(t, c.Ack(msg))
		} else {
			require.ErrorContains(t, c.DeadLetter(bg, msg, nil), "could not be decrypted")
			c.Nack(msg)
		}
	}
	nothing(t, c, ms(500))
	require.Eventually(t, func() bool { return b.stats(topic, 0).Backlog == 1 }, 10*time.Second, 10*time.Millisecond, "it is still there")
	require.NotZero(t, c.Stats().Failed)
}

// An empty message comes out of the dead letter topic empty, and not as its ciphertext.
func TestEmptyDeadLettersThatAreEncrypted(t *testing.T) {
	t.Parallel()
	b, k := newBroker(t), reader()
	topic := b.topic(0)
	c, dead := b.encryptedDeadLetters(k, topic)
	p, err := b.client.CreateProducer(pulsar.ProducerOptions{Topic: topic, Encryption: k.encryption(keyName)})
	require.NoError(t, err)
	defer p.Close()
	_, err = p.Send(bg, &pulsar.ProducerMessage{Payload: []byte{}})
	require.NoError(t, err)
	msg := next(t, c, patience)
	require.NoError(t, c.DeadLetter(bg, msg, nil))
	for _, msg := range []pulsar.Message{msg, next(t, dead, patience)} {
		require.Empty(t, msg.Payload())
		require.False(t, msg.IsNullValue())
	}
}
