package suite

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

// One of two consumers fails on everything, the other on nothing. What the first has nacked is to have its chance with
// the second: there are not many more dead letters than without the library.
func TestABrokenConsumerDoesNotSpoilMessagesForOthers(t *testing.T) {
	t.Parallel()
	const n = 400
	each(t, map[string]bool{"batched": true, "single": false}, func(t *testing.T, batched bool) {
		t.Parallel()
		var dead, handled [2]int
		for i, plain := range []bool{true, false} {
			dead[i], handled[i] = deadLetters(t, n, batched, plain)
		}
		t.Logf("dead of %d: plain %d, wrapped %d; taken: plain %d, wrapped %d", n, dead[0], dead[1], handled[0], handled[1])
		require.LessOrEqual(t, dead[1], dead[0]*3/2+n*3/10)
	})
}

// deadLetters returns how many of n messages become dead letters, and how often messages are taken.
func deadLetters(t *testing.T, n int, batched, plain bool) (dead, taken int) {
	b := newBroker(t)
	opts := b.options(b.topic(0), pulsar.Shared)
	opts.NackRedeliveryDelay = ms(100)
	opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 4, DeadLetterTopic: b.topic(0)}
	ctx, cancel := context.WithCancel(context.Background())
	var working sync.WaitGroup
	var mu sync.Mutex
	settle := map[bool]func(pulsar.Consumer, pulsar.Message){
		true: func(c pulsar.Consumer, msg pulsar.Message) { c.Nack(msg) }, false: func(c pulsar.Consumer, msg pulsar.Message) { _ = c.Ack(msg) },
	}
	for _, broken := range []bool{true, false} {
		c := b.either(plain, opts)
		working.Go(func() {
			for {
				msg, err := c.Receive(ctx)
				if err != nil {
					return
				}
				time.Sleep(ms(1))
				settle[broken](c, msg)
				mu.Lock()
				taken++
				mu.Unlock()
			}
		})
	}
	b.sendBatchesOf(opts.Topic, n, batched)
	require.Eventually(t, func() bool {
		s := b.stats(opts.Topic, 0)
		return s.Backlog == 0 && s.Unacked <= 0
	}, 15*time.Second, ms(50))
	cancel()
	working.Wait()
	letters := b.plain(b.options(opts.DLQ.DeadLetterTopic, pulsar.Exclusive))
	seen := map[string]bool{}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		msg, err := letters.Receive(ctx)
		cancel()
		if err != nil {
			return len(seen), taken
		}
		seen[string(msg.Payload())] = true
	}
}

// sendBatchesOf publishes n messages, twenty in a batch if batched.
func (b *broker) sendBatchesOf(topic string, n int, batched bool) {
	b.t.Helper()
	p, err := b.client.CreateProducer(pulsar.ProducerOptions{
		Topic: topic, DisableBatching: !batched, BatchingMaxMessages: 20, BatchingMaxPublishDelay: time.Minute,
	})
	require.NoError(b.t, err)
	defer p.Close()
	for i := range n {
		p.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(i))}, nil)
	}
	require.NoError(b.t, p.FlushWithCtx(context.Background()))
}
