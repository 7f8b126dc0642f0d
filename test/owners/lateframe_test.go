package owners

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// slowKeys is a slow key reader, which returns the lost key when slow is closed.
type slowKeys struct {
	testkit.KeyReader
	once        *sync.Once
	asked, slow chan struct{}
}

func (k slowKeys) PrivateKey(name string, meta map[string]string) (*crypto.EncryptionKeyInfo, error) {
	if name == testkit.LostKeyName {
		k.once.Do(func() { close(k.asked) })
		<-k.slow
	}
	return k.KeyReader.PrivateKey(name, meta)
}

// After upstream has noticed a lost connection, it may still read messages that came over that connection. Here it
// does, since its key reader is slow. The next connection clears these messages. The messages that come over the next
// connection must be delivered.
func TestMessagesAfterLostConnectionAreDelivered(t *testing.T) {
	t.Parallel()
	for name, kind := range testkit.SubscriptionTypes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 300
			b, k := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{}), testkit.NewKeyReader()
			k.Found.Store(true)
			topic := b.NewTopic(0)
			opts := b.Options(topic, kind)
			slow := slowKeys{k, new(sync.Once), make(chan struct{}), make(chan struct{})}
			opts.Decryption = &pulsar.MessageDecryptionInfo{KeyReader: slow}
			c := b.Subscribe(opts)
			b.Send(topic, n, false)
			require.NoError(t, c.Ack(testkit.Receive(t, c))) // on Failover, the consumer is now active
			other := &testkit.Broker{T: t, URL: b.URL}       // has a client with a connection of its own
			other.Connect(pulsar.ClientOptions{})
			other.Publish(pulsar.ProducerOptions{Topic: topic, Encryption: k.Encryption(testkit.LostKeyName)},
				&pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(n))})
			waittest.Next(t, slow.asked)
			lost := c.NextLoss()
			b.InProcess.RefuseConnections(true)
			b.InProcess.DropConnections()
			acked := 1
			for noticed := false; !noticed; { // upstream notices the loss when it writes
				ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
				if msg, err := c.Receive(ctx); err == nil { // an error means that upstream has noticed the loss
					require.NoError(t, c.Ack(msg))
					acked++
				}
				cancel()
				select {
				case <-lost:
					noticed = true
				case <-time.After(150 * time.Millisecond):
				}
				require.Less(t, acked, n/2)
			}
			close(slow.slow)
			time.Sleep(50 * time.Millisecond) // until upstream has read the message, which waits behind others while the application is busy
			b.InProcess.RefuseConnections(false)
			require.Eventually(t, func() bool { return c.Stats().Reconnecting == 0 }, testkit.Patience,
				time.Millisecond)
			left := map[string]bool{}
			for i := acked; i <= n; i++ {
				left[fmt.Sprint(i)] = true
			}
			for len(left) > 0 {
				msg := testkit.Receive(t, c)
				delete(left, string(msg.Payload()))
				require.NoError(t, c.Ack(msg))
			}
			b.Settles(topic, 0)
		})
	}
}
