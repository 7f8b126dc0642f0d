package owners

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// A consumer fails again and again on a message of each key. Another one joins, and gets the messages of its keys.
func TestJoiningConsumerGetsFailingKeys(t *testing.T) {
	t.Parallel()
	const keys, atLeast = 50, 10 // about half of the keys move
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
			for range 2 * keys { // so that all messages have failed
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

// Messages wait while another consumer joins and gets some of their keys.
func TestJoiningConsumerGetsNoKeyEarly(t *testing.T) {
	t.Parallel()
	const n, delay = 60, 3 * time.Second
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	b.Send(topic, n, false)
	first := b.Subscribe(b.Options(topic, pulsar.KeyShared), redelivery.WithNackRedeliveryDelay(delay))
	var due sync.Map // time.Time by payload
	for range n {
		msg := testkit.Receive(t, first)
		due.Store(testkit.Name(msg), time.Now().Add(delay))
		first.Nack(msg)
		time.Sleep(5 * time.Millisecond)
	}
	second := b.Subscribe(b.Options(topic, pulsar.KeyShared))
	var early, came [2]atomic.Int32
	var earliest atomic.Int64
	ctx, cancel := context.WithTimeout(context.Background(), 2*delay)
	defer cancel()
	var consuming sync.WaitGroup
	for i, c := range []*redelivery.Consumer{first, second} {
		consuming.Go(func() {
			for {
				msg, err := c.Receive(ctx)
				if err != nil {
					return
				}
				now := time.Now()
				planned, _ := due.Load(testkit.Name(msg))
				if by := planned.(time.Time).Sub(now); by > 0 {
					early[i].Add(1)
					earliest.Store(max(earliest.Load(), int64(by)))
				}
				came[i].Add(1)
				if err := c.Ack(msg); err == nil && came[0].Load()+came[1].Load() == n {
					time.AfterFunc(300*time.Millisecond, cancel)
				}
			}
		})
	}
	consuming.Wait()
	t.Logf("%d messages came to the first, %d to the second, early by up to %v", came[0].Load(), came[1].Load(),
		time.Duration(earliest.Load()))
	require.Zero(t, early[0].Load(), "early in the consumer that nacked")
	require.Zero(t, early[1].Load(), "early in the consumer that joined")
}
