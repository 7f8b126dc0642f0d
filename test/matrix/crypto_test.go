package matrix

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

func TestDecryptedMessagesAreNotPublishedAsPlainText(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	opts := b.Options(b.NewTopic(0), pulsar.Shared)
	opts.Decryption, opts.DLQ = testkit.NewKeyReader().Decryption(), &pulsar.DLQPolicy{MaxDeliveries: 3}
	_, err := redelivery.Subscribe(b.Client, opts)
	require.ErrorIs(t, err, redelivery.ErrInvalidOption)
	opts.DLQ, opts.RetryEnable = nil, true
	_, err = redelivery.Subscribe(b.Client, opts)
	require.ErrorIs(t, err, redelivery.ErrInvalidOption)
}

// good receives and acknowledges all messages except "3".
func good(t testing.TB, c *redelivery.Consumer) {
	t.Helper()
	for _, i := range []int{0, 1, 2, 4, 5, 6} {
		msg := testkit.Patiently(t, c)
		require.Equal(t, fmt.Sprint(i), string(msg.Payload()))
		require.NoError(t, c.Ack(msg))
	}
}

var cryptoKinds = map[string]func(*testkit.Broker, *pulsar.ConsumerOptions){
	"Shared":    func(*testkit.Broker, *pulsar.ConsumerOptions) {},
	"Exclusive": func(_ *testkit.Broker, o *pulsar.ConsumerOptions) { o.Type = pulsar.Exclusive },
	"multi-topic": func(b *testkit.Broker, o *pulsar.ConsumerOptions) {
		o.Topic, o.Topics = "", []string{o.Topic, b.NewTopic(0)}
	},
}

// Upstream itself nacks an undecryptable message, each time it comes. The Consumer's policy delays the message like any
// other.
func TestUndecryptableComesBackByPolicy(t *testing.T) {
	t.Parallel()
	testkit.Each(t, cryptoKinds, func(t *testing.T, adjust func(*testkit.Broker, *pulsar.ConsumerOptions)) {
		b, k := testkit.NewBroker(t), testkit.NewKeyReader()
		topic := b.NewTopic(0)
		opts := b.Options(topic, pulsar.Shared)
		opts.Decryption = k.Decryption()
		adjust(b, &opts)
		// after 0.2, 0.6, 1.4 and 3.0 s
		policy := backoff.Exponential{Min: 200 * time.Millisecond, Max: time.Minute, Multiplier: 2}
		c := b.Subscribe(opts, redelivery.WithNackRedeliveryBackoff(policy))
		begin := time.Now()
		b.SendAmong(k, topic)
		good(t, c)
		for k.Asked.Load() < 4 {
			testkit.ReceiveNothing(t, c, 100*time.Millisecond)
		}
		require.GreaterOrEqual(t, time.Since(begin), 1400*time.Millisecond, "early")
		testkit.ReceiveNothing(t, c, 500*time.Millisecond)
		asked := int(k.Asked.Load())
		if time.Since(begin) < 3*time.Second {
			require.Equal(t, 4, asked)
		}
		if opts.Type == pulsar.Shared {
			out := b.Stats(topic, 0).Out
			require.GreaterOrEqual(t, out, 6+asked)
			require.LessOrEqual(t, out, 6+int(k.Asked.Load())+1) // one may be on its way
		}
		k.Found.Store(true)
		msg := testkit.Patiently(t, c)
		require.Equal(t, "3", string(msg.Payload()))
		require.EqualValues(t, k.Asked.Load()-1, c.RedeliveryCount(msg))
		require.NoError(t, c.Ack(msg))
		b.Settles(topic, 0)
	})
}

// encryptedDeadLetters subscribes to a topic with encrypted messages, and to their dead letters, which are also
// encrypted. A message becomes a dead letter after two deliveries.
func encryptedDeadLetters(b *testkit.Broker, k testkit.KeyReader, topic string, options ...redelivery.Option) (c *redelivery.Consumer, dead pulsar.Consumer) {
	b.T.Helper()
	opts := b.Options(topic, pulsar.Shared)
	opts.Decryption = k.Decryption()
	opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 2,
		ProducerOptions: pulsar.ProducerOptions{Encryption: k.Encryption(testkit.KeyName)}}
	c = b.Subscribe(opts, options...)
	deadOpts := b.Options(testkit.DeadLetterTopic(topic), pulsar.Exclusive)
	deadOpts.Decryption = k.Decryption()
	dead, err := b.Client.Subscribe(deadOpts)
	require.NoError(b.T, err)
	b.T.Cleanup(dead.Close)
	return c, dead
}

// The deliveries of an undecryptable message count. But it becomes a dead letter only after it was decrypted, because
// the dead letter must be encrypted again.
func TestUndecryptableIsDeadLetterOnceDecrypted(t *testing.T) {
	t.Parallel()
	b, k := testkit.NewBroker(t), testkit.NewKeyReader()
	topic := b.NewTopic(0)
	c, dead := encryptedDeadLetters(b, k, topic, redelivery.WithNackRedeliveryDelay(200*time.Millisecond))
	b.SendAmong(k, topic)
	good(t, c)
	for k.Asked.Load() < 4 {
		testkit.ReceiveNothing(t, c, 100*time.Millisecond)
	}
	require.Equal(t, 1, b.Stats(topic, 0).Backlog)
	k.Found.Store(true)
	receiving, stop := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() { // no dead letters are made while nothing receives
		defer close(stopped)
		_, err := c.Receive(receiving)
		assert.Error(t, err)
	}()
	require.Equal(t, "3", string(testkit.Next(t, dead, testkit.Patience).Payload()))
	stop()
	<-stopped
	b.Settles(topic, 0)
}

// The application does not get copies that come early.
func TestUndecryptableMessageIsHeldOverUnload(t *testing.T) {
	t.Parallel()
	b, k := testkit.NewBroker(t), testkit.NewKeyReader()
	topic := b.NewTopic(0)
	opts := b.Options(topic, pulsar.Shared)
	opts.Decryption, opts.AckWithResponse = k.Decryption(), true // otherwise an unload may lose an acknowledgement
	c := b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(2*time.Second))
	b.SendAmong(k, topic)
	good(t, c)
	goodAgain := func(d time.Duration) {
		// at an unload the broker may forget an acknowledgement that it has confirmed
		ctx, cancel := context.WithTimeout(context.Background(), d)
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
		b.Unload(topic)
		goodAgain(time.Second)
	}
	goodAgain(2 * time.Second) // the copy is due
	k.Found.Store(true)
	msg := testkit.Patiently(t, c)
	require.Equal(t, "3", string(msg.Payload()))
	require.NoError(t, c.Ack(msg))
	b.Settles(topic, 0)
}

// Upstream's zero-queue consumer does not report messages that it could not decrypt. If it nacked one, the program
// would crash.
func TestUndecryptableOfZeroQueueConsumerStaysAtTheBroker(t *testing.T) {
	t.Parallel()
	b, k := testkit.NewBroker(t), testkit.NewKeyReader()
	topic := b.NewTopic(0)
	opts := b.Options(topic, pulsar.Shared)
	opts.EnableZeroQueueConsumer = true
	opts.Decryption = k.Decryption()
	opts.Decryption.ConsumerCryptoFailureAction = crypto.ConsumerCryptoFailureActionConsume
	_, err := redelivery.Subscribe(b.Client, opts)
	require.ErrorIs(t, err, redelivery.ErrInvalidOption)
	require.ErrorContains(t, err, "want another with EnableZeroQueueConsumer")

	opts.Decryption.ConsumerCryptoFailureAction = crypto.ConsumerCryptoFailureActionFail
	var log logtest.Buffer
	c := b.Subscribe(opts, testkit.LogTo(&log), redelivery.WithNackRedeliveryDelay(100*time.Millisecond))
	b.SendAmong(k, topic)
	good(t, c)
	testkit.ReceiveNothing(t, c, 500*time.Millisecond)
	require.EqualValues(t, 1, k.Asked.Load())
	require.EqualValues(t, 1, c.Stats().Failed)
	require.Contains(t, log.String(), "cannot be decrypted: it stays at the broker until the consumer reconnects")
	k.Found.Store(true)
	b.Unload(topic)
	msg := testkit.Patiently(t, c)
	require.Equal(t, "3", string(msg.Payload()))
	require.NoError(t, c.Ack(msg))
	b.Settles(topic, 0)
}

// Without Decryption every encrypted message is undecryptable.
func TestUndecryptableWithoutDecryptionStaysAtTheBroker(t *testing.T) {
	t.Parallel()
	b, k := testkit.NewBroker(t), testkit.NewKeyReader()
	topic := b.NewTopic(0)
	c := b.Subscribe(b.Options(topic, pulsar.Shared), redelivery.WithNackRedeliveryDelay(500*time.Millisecond))
	begin := time.Now()
	b.SendAmong(k, topic)
	b.Send(topic, 3, true)
	for i := range 3 {
		msg := testkit.Receive(t, c)
		require.Equal(t, fmt.Sprint(i), string(msg.Payload()))
		require.NoError(t, c.Ack(msg))
	}
	testkit.ReceiveNothing(t, c, time.Second)
	out := b.Stats(topic, 0).Out
	runs := 1 + int(time.Since(begin)/(500*time.Millisecond))
	require.LessOrEqual(t, out, 3+7*(runs+1))
	require.Eventually(t, func() bool { return b.Stats(topic, 0).Backlog == 7 }, 5*time.Second, 50*time.Millisecond)
}

func TestCryptoFailureActionsAreKept(t *testing.T) {
	t.Parallel()
	testkit.Each(t, map[string]int{"consume": crypto.ConsumerCryptoFailureActionConsume,
		"discard": crypto.ConsumerCryptoFailureActionDiscard},
		func(t *testing.T, action int) {
			b, k := testkit.NewBroker(t), testkit.NewKeyReader()
			topic := b.NewTopic(0)
			opts := b.Options(topic, pulsar.Shared)
			opts.Decryption = k.Decryption()
			opts.Decryption.ConsumerCryptoFailureAction = action
			c := b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(200*time.Millisecond))
			b.SendAmong(k, topic)
			if action == crypto.ConsumerCryptoFailureActionDiscard {
				good(t, c)
				testkit.ReceiveNothing(t, c, 500*time.Millisecond)
				b.Settles(topic, 0)
				require.EqualValues(t, 1, k.Asked.Load())
				return
			}
			var due time.Time
			undecrypted := uint32(0)
			for range 7 + 1 {
				msg := testkit.Receive(t, c)
				if msg.GetEncryptionContext() != nil {
					require.False(t, time.Now().Before(due), "early")
					require.Equal(t, undecrypted, c.RedeliveryCount(msg))
					undecrypted++
					if undecrypted == 1 {
						due = time.Now().Add(200 * time.Millisecond)
						c.Nack(msg)
						continue
					}
				}
				require.NoError(t, c.Ack(msg))
			}
			require.EqualValues(t, 2, undecrypted)
			b.Settles(topic, 0)
		})
}

// The content of such a message would be lost if it were published with other keys, or with none.
func TestMessageNotDecryptedIsNoDeadLetter(t *testing.T) {
	t.Parallel()
	b, k := testkit.NewBroker(t), testkit.NewKeyReader()
	topic := b.NewTopic(0)
	opts := b.Options(topic, pulsar.Shared)
	opts.Decryption = k.Decryption()
	opts.Decryption.ConsumerCryptoFailureAction = crypto.ConsumerCryptoFailureActionConsume
	opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 2,
		ProducerOptions: pulsar.ProducerOptions{Encryption: k.Encryption(testkit.KeyName)}}
	c := b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(100*time.Millisecond))
	b.SendAmong(k, topic)
	for range 7 + 1 {
		if msg := testkit.Receive(t, c); msg.GetEncryptionContext() == nil {
			require.NoError(t, c.Ack(msg))
		} else {
			require.ErrorContains(t, c.DeadLetter(context.Background(), msg, nil), "could not be decrypted")
			c.Nack(msg)
		}
	}
	testkit.ReceiveNothing(t, c, 500*time.Millisecond)
	require.Eventually(t, func() bool { return b.Stats(topic, 0).Backlog == 1 }, 10*time.Second, 10*time.Millisecond,
		"the message did not stay at the broker")
	require.NotZero(t, c.Stats().Failed)
}

// The ciphertext of an empty payload is not empty, and must not become the payload of the dead letter.
func TestEmptyEncryptedDeadLetterStaysEmpty(t *testing.T) {
	t.Parallel()
	b, k := testkit.NewBroker(t), testkit.NewKeyReader()
	topic := b.NewTopic(0)
	c, dead := encryptedDeadLetters(b, k, topic)
	p, err := b.Client.CreateProducer(pulsar.ProducerOptions{Topic: topic, Encryption: k.Encryption(testkit.KeyName)})
	require.NoError(t, err)
	defer p.Close()
	_, err = p.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte{}})
	require.NoError(t, err)
	msg := testkit.Next(t, c, testkit.Patience)
	require.NoError(t, c.DeadLetter(context.Background(), msg, nil))
	for _, msg := range []pulsar.Message{msg, testkit.Next(t, dead, testkit.Patience)} {
		require.Empty(t, msg.Payload())
		require.False(t, msg.IsNullValue())
	}
}
