package suite

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// Messages wait while another consumer joins, which takes over some of their keys.
func TestNothingIsEarlyWhenAConsumerJoinsKeyShared(t *testing.T) {
	t.Parallel()
	const n, delay = 60, 3 * time.Second
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	b.Send(topic, n, false)
	first := b.Subscribe(b.Options(topic, pulsar.KeyShared), redelivery.WithNackRedeliveryDelay(delay))
	var due sync.Map // of time.Time by name
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
	t.Logf("%d came to the first, %d to the second, early by up to %v", came[0].Load(), came[1].Load(), time.Duration(earliest.Load()))
	require.Zero(t, early[0].Load(), "early in the consumer that nacked")
	require.Zero(t, early[1].Load(), "early in the consumer that joined")
}

// What was asked for on Shared may go to another consumer, which nobody tells the first.
func TestWaitingForgetsWhatWentToAnotherConsumer(t *testing.T) {
	testkit.TakesMinutes(t) // ten requests in vain; internal/partition has them in virtual time
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
	require.Eventually(t, func() bool { return acked[0].Load()+acked[1].Load() >= n }, 15*time.Second, 20*time.Millisecond)
	require.Eventually(t, func() bool { return first.Stats().Waiting == 0 }, 2*time.Minute, 100*time.Millisecond, // ten requests in vain take more than one
		"all messages are acknowledged: %d here, %d elsewhere", acked[0].Load(), acked[1].Load())
	cancel()
	consuming.Wait()
}
