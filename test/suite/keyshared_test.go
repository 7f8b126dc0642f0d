package suite

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// A consumer joins Key_Shared while another fails on a message of each key, again and again. It gets those of the keys
// that are its own from now on.
func TestAJoiningConsumerGetsKeysThatFail(t *testing.T) {
	t.Parallel()
	const keys, atLeast = 50, 10 // half of them move
	for _, name := range []string{"wrapped", "plain"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBroker(t)
			opts := b.Options(b.NewTopic(0), pulsar.KeyShared)
			opts.NackRedeliveryDelay = time.Second
			subscribe := b.SubscribePlain
			if name == "wrapped" {
				subscribe = func(o pulsar.ConsumerOptions) pulsar.Consumer { return b.Subscribe(o) }
			}
			b.Send(opts.Topic, keys, false)
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			var failing sync.WaitGroup
			defer failing.Wait()
			defer cancel()
			first, had := subscribe(opts), make(chan struct{}, 1000)
			failing.Go(func() {
				for {
					msg, err := first.Receive(ctx)
					if err != nil {
						return
					}
					first.Nack(msg)
					select {
					case had <- struct{}{}:
					default:
					}
				}
			})
			for range 2 * keys { // so that all of them have failed
				waittest.Next(t, had)
			}
			second, begin, seen := subscribe(opts), time.Now(), map[string]bool{}
			deadline, end := context.WithDeadline(ctx, begin.Add(20*time.Second))
			defer end()
			for len(seen) < atLeast {
				msg, err := second.Receive(deadline)
				require.NoError(t, err, "%d keys came", len(seen))
				seen[msg.Key()] = true
				require.NoError(t, second.Ack(msg))
			}
			t.Logf("%d keys after %v", len(seen), time.Since(begin))
		})
	}
}
