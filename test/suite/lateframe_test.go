package suite

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
)

// slowKeys are keys that somebody far away has: the lost key comes when slow is closed.
type slowKeys struct {
	keyReader
	once        *sync.Once
	asked, slow chan struct{}
}

func (k slowKeys) PrivateKey(name string, meta map[string]string) (*crypto.EncryptionKeyInfo, error) {
	if name == lostKeyName {
		k.once.Do(func() { close(k.asked) })
		<-k.slow
	}
	return k.keyReader.PrivateKey(name, meta)
}

// Upstream reads on for a while after it has noticed that a connection is lost, here since a key takes long. What it
// reads is cleared before the next connection, and what comes by that is handed out all the same.
func TestMessagesAfterALostConnectionAreHandedOut(t *testing.T) {
	t.Parallel()
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 300
			b, k := newInProcess(t, pulsar.ClientOptions{}), reader()
			k.found.Store(true)
			topic := b.topic(0)
			opts := b.options(topic, kind)
			slow := slowKeys{k, new(sync.Once), make(chan struct{}), make(chan struct{})}
			opts.Decryption = &pulsar.MessageDecryptionInfo{KeyReader: slow}
			c := b.subscribe(opts)
			b.send(topic, n, false)
			require.NoError(t, c.Ack(receive(t, c))) // on Failover it is the active one now
			by := &broker{t: t, url: b.url}          // whose connection is read meanwhile
			by.connect(pulsar.ClientOptions{})
			by.publish(pulsar.ProducerOptions{Topic: topic, Encryption: k.encryption(lostKeyName)}, &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(n))})
			waittest.Next(t, slow.asked)
			lost := c.NextLoss()
			b.inProcess.RefuseConnections(true)
			b.inProcess.DropConnections()
			acked := 1
			for noticed := false; !noticed; { // by writing
				ctx, cancel := context.WithTimeout(t.Context(), ms(150))
				if msg, err := c.Receive(ctx); err == nil { // else the loss is noticed already
					require.NoError(t, c.Ack(msg))
					acked++
				}
				cancel()
				select {
				case <-lost:
					noticed = true
				case <-time.After(ms(150)):
				}
				require.Less(t, acked, n/2)
			}
			close(slow.slow)
			time.Sleep(ms(50)) // it is read, and waits behind others, as the application is at work
			b.inProcess.RefuseConnections(false)
			require.Eventually(t, func() bool { return c.Stats().Reconnecting == 0 }, patience, ms(1))
			left := map[string]bool{}
			for i := acked; i <= n; i++ {
				left[fmt.Sprint(i)] = true
			}
			for len(left) > 0 {
				msg := receive(t, c)
				delete(left, string(msg.Payload()))
				require.NoError(t, c.Ack(msg))
			}
			b.settles(topic, 0)
		})
	}
}
