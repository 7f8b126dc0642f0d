package retry

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// One of two consumers nacks every message, and the other acknowledges every message. The second must get messages that
// the first nacked, so that there are not many more dead letters than with plain consumers. On a real broker the test
// is not parallel, since the load of other tests would decide which consumer is faster.
func TestBrokenConsumerSparesMessagesOfOthers(t *testing.T) {
	if !testkit.HasRealBroker() {
		t.Parallel()
	}
	const n = 400
	testkit.Each(t, map[string]bool{"batched": true, "single": false}, func(t *testing.T, batched bool) {
		var dead, handled [2]int
		for i, plain := range []bool{true, false} {
			dead[i], handled[i] = deadLetters(t, n, batched, plain)
		}
		t.Logf("dead letters of %d: plain %d, wrapped %d; deliveries: plain %d, wrapped %d", n, dead[0], dead[1], handled[0],
			handled[1])
		require.LessOrEqual(t, dead[1], dead[0]*3/2+n*3/10)
	})
}

// deadLetters returns how many of n messages become dead letters, and how many deliveries there are.
func deadLetters(t *testing.T, n int, batched, plain bool) (dead, taken int) {
	b := testkit.NewBroker(t)
	opts := b.Options(b.NewTopic(0), pulsar.Shared)
	opts.NackRedeliveryDelay = 100 * time.Millisecond
	opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 4, DeadLetterTopic: b.NewTopic(0)}
	ctx, cancel := context.WithCancel(context.Background())
	var working sync.WaitGroup
	var mu sync.Mutex
	settle := map[bool]func(pulsar.Consumer, pulsar.Message){
		true: func(c pulsar.Consumer, msg pulsar.Message) { c.Nack(msg) }, false: func(c pulsar.Consumer, msg pulsar.Message) { _ = c.Ack(msg) },
	}
	for _, broken := range []bool{true, false} {
		c := b.SubscribeEither(plain, opts)
		working.Go(func() {
			for {
				msg, err := c.Receive(ctx)
				if err != nil {
					return
				}
				time.Sleep(time.Millisecond)
				settle[broken](c, msg)
				mu.Lock()
				taken++
				mu.Unlock()
			}
		})
	}
	sendBatchesOf(b, opts.Topic, n, batched)
	require.Eventually(t, func() bool {
		return b.Stats(opts.Topic, 0).Backlog == 0
	}, 15*time.Second, 50*time.Millisecond)
	cancel()
	working.Wait()
	letters := b.SubscribePlain(b.Options(opts.DLQ.DeadLetterTopic, pulsar.Exclusive))
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

// sendBatchesOf publishes n messages, in batches of twenty if batched is set.
func sendBatchesOf(b *testkit.Broker, topic string, n int, batched bool) {
	b.T.Helper()
	p, err := b.Client.CreateProducer(pulsar.ProducerOptions{
		Topic: topic, DisableBatching: !batched, BatchingMaxMessages: 20, BatchingMaxPublishDelay: time.Minute,
	})
	require.NoError(b.T, err)
	defer p.Close()
	for i := range n {
		p.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(i))}, nil)
	}
	require.NoError(b.T, p.FlushWithCtx(context.Background()))
}
