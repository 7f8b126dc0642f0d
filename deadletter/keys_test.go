package deadletter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
)

// There are two Key_Shared consumers.
func TestReplayedLettersOfAKeyGoToOneConsumer(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(m *pulsar.ProducerMessage, key string){
		"keys":          func(m *pulsar.ProducerMessage, key string) { m.Key = key },
		"ordering keys": func(m *pulsar.ProducerMessage, key string) { m.Key, m.OrderingKey = "same", key },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			tp := b.topics(0)
			const n, keys = 200, 40
			letters := tp.letters(n)
			for i, l := range letters {
				set(l, fmt.Sprint("key ", i%keys))
			}
			b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, letters...)
			got := make(chan pulsar.ConsumerMessage, n)
			for range 2 {
				c, err := b.client.Subscribe(pulsar.ConsumerOptions{Topic: tp.retry, SubscriptionName: "keys",
					Type: pulsar.KeyShared, MessageChannel: got})
				require.NoError(t, err)
				defer c.Close()
			}
			report, err := b.open(tp.dlq).Replay(bg, deadletter.ReplayOptions{})
			require.NoError(t, err)
			require.Equal(t, n, report.Done)
			owners, first := map[string]string{}, map[string]int{}
			for range n {
				select {
				case msg := <-got:
					key, owner := msg.Key(), msg.Consumer.Name()
					if name == "ordering keys" {
						key = msg.OrderingKey()
					}
					if owners[key] == "" {
						owners[key] = owner
						first[owner]++
					}
					require.Equal(t, owners[key], owner, key)
				case <-time.After(20 * time.Second):
					t.Fatal("a message is lost")
				}
			}
			require.Len(t, owners, keys)
			require.Len(t, first, 2, "a consumer got no key")
		})
	}
}
