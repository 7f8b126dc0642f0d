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

// On Shared, a message that one consumer requested may go to another, and the first is not notified. After ten requests
// without an answer the first no longer counts the message as waiting.
func TestWaitingStatForgetsMessagesOfOtherConsumers(t *testing.T) {
	testkit.TakesLong(t) // ten requests; internal/partition tests them in virtual time
	t.Parallel()
	const n = 40
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	b.Send(topic, n, false)
	first := b.Subscribe(b.Options(topic, pulsar.Shared), redelivery.WithNackRedeliveryDelay(500*time.Millisecond))
	for range n {
		first.Nack(testkit.Receive(t, first))
	}
	second := b.Subscribe(b.Options(topic, pulsar.Shared))
	ctx, cancel := context.WithCancel(context.Background())
	var consuming sync.WaitGroup
	var acked [2]atomic.Int32
	for i, c := range []*redelivery.Consumer{first, second} {
		consuming.Go(func() {
			for {
				msg, err := c.Receive(ctx)
				if err != nil {
					return
				}
				if c.Ack(msg) == nil {
					acked[i].Add(1)
				}
			}
		})
	}
	require.Eventually(t, func() bool { return acked[0].Load()+acked[1].Load() >= n }, 15*time.Second,
		20*time.Millisecond)
	// ten requests take more than a minute
	require.Eventually(t, func() bool { return first.Stats().Waiting == 0 }, 2*time.Minute, 100*time.Millisecond,
		"messages wait, but all are acknowledged: %d by the first, %d by the second", acked[0].Load(), acked[1].Load())
	cancel()
	consuming.Wait()
}

// The topic of two consumers is unloaded. A message of the first consumer either still belongs to it, as Reclaim
// reports, or comes again to one of the two. Each message is handled once, except a few that the first consumer
// requests right before the broker sends them again: a known window of internal/partition.
func TestReclaimedMessagesOfTwoConsumersComeToOne(t *testing.T) {
	t.Parallel()
	const n = 20
	for name, kind := range map[string]pulsar.SubscriptionType{"Shared": pulsar.Shared, "KeyShared": pulsar.KeyShared} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			first := b.Subscribe(b.Options(topic, kind))
			b.Send(topic, n, false)
			var had []pulsar.Message
			for range n {
				had = append(had, testkit.Receive(t, first))
			}
			second := b.Subscribe(b.Options(topic, kind))
			next := first.NextLoss()
			b.Unload(topic)
			waittest.Next(t, next)

			var mu sync.Mutex
			handled := map[string]int{}
			handle := func(c *redelivery.Consumer, msg pulsar.Message) {
				if err := c.Ack(msg); err != nil {
					t.Errorf("message %s: %v", msg.Payload(), err)
				}
				mu.Lock()
				handled[string(msg.Payload())]++
				mu.Unlock()
			}
			for _, msg := range had {
				if err := first.Reclaim(msg); err == nil {
					handle(first, msg)
				} else {
					require.ErrorIs(t, err, redelivery.ErrNotInFlight)
				}
			}
			var receiving sync.WaitGroup
			ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
			defer cancel()
			for _, c := range []*redelivery.Consumer{first, second} {
				receiving.Go(func() {
					for {
						msg, err := c.Receive(ctx)
						if err != nil {
							return
						}
						handle(c, msg)
					}
				})
			}
			b.Settles(topic, 0)
			time.Sleep(time.Second) // time for copies to come
			cancel()
			receiving.Wait()
			require.Len(t, handled, n)
			doubles := 0
			for _, times := range handled {
				doubles += times - 1
			}
			require.LessOrEqual(t, doubles, n/5)
		})
	}
}
