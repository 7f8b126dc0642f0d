package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/waittest"
)

// A consumer joins Key_Shared while another fails on a message of each key, again and again. It gets those of the keys that are its own from
// now on.
func TestAJoiningConsumerGetsKeysThatFail(t *testing.T) {
	t.Parallel()
	const keys, atLeast = 50, 10 // half of them move
	for _, name := range []string{"wrapped", "plain"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			opts := b.options(b.topic(0), pulsar.KeyShared)
			opts.NackRedeliveryDelay = time.Second
			subscribe := b.plain
			if name == "wrapped" {
				subscribe = func(o pulsar.ConsumerOptions) pulsar.Consumer { return b.subscribe(o) }
			}
			b.send(opts.Topic, keys, false)
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

// A consumer settles the rest of batches of which another one, that is gone, settled half, by index; then a third one joins. It gets what is new
// of the keys that are its own from now on: Pulsar has plain consumers wait, since it does not notice that it has all of the batches; 4.2 for ever,
// and 4.0 as long as an older message is not settled.
func TestAJoiningConsumerGetsKeysOfSharedBatches(t *testing.T) {
	t.Parallel()
	const keys, each = 20, 4
	b := newBroker(t)
	opts := b.options(b.topic(0), pulsar.KeyShared)
	opts.EnableBatchIndexAcknowledgment, opts.AckWithResponse = true, true
	first := b.subscribe(opts)
	p, err := b.client.CreateProducer(pulsar.ProducerOptions{Topic: opts.Topic, BatcherBuilderType: pulsar.KeyBasedBatchBuilder,
		BatchingMaxMessages: 1000, BatchingMaxPublishDelay: ms(300)})
	require.NoError(t, err)
	defer p.Close()
	send := func(n int) {
		for i := range n * keys {
			p.SendAsync(bg, &pulsar.ProducerMessage{Key: fmt.Sprint(i % keys), Payload: []byte(fmt.Sprint(i))}, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
				assert.NoError(t, err)
			})
		}
		require.NoError(t, p.FlushWithCtx(bg))
	}
	const older = "older"
	_, err = p.Send(bg, &pulsar.ProducerMessage{Key: older})
	require.NoError(t, err)
	send(each)
	half := map[string]int{}
	for range each*keys + 1 {
		if msg := receive(t, first); msg.Key() != older && half[msg.Key()] < each/2 {
			half[msg.Key()]++
			require.NoError(t, first.Ack(msg))
		}
	}
	first.Close()
	second := b.subscribe(opts)
	got := map[string]bool{}
	var held pulsar.Message
	for len(got) < each/2*keys { // without batch-index acknowledgement at the broker all of a batch comes
		msg := receive(t, second)
		if msg.Key() == older {
			held = msg
			continue
		}
		got[msg.Key()+" "+string(msg.Payload())] = true
		require.NoError(t, second.Ack(msg))
	}
	third := b.subscribe(opts)
	var stats json.RawMessage
	b.rest("GET", opts.Topic, "/stats", nil, &stats)
	if b.inProcess == nil && !strings.Contains(string(stats), "drainingHashes") { // Pulsar 3.0 sends who joins nothing before that is settled
		require.NoError(t, second.Ack(held))
	}
	send(1)
	ctx, cancel := context.WithTimeout(bg, patience)
	defer cancel()
	var receiving sync.WaitGroup
	var mu sync.Mutex
	fresh := map[string]bool{}
	for _, c := range []pulsar.Consumer{second, third} {
		receiving.Go(func() {
			for {
				msg, err := c.Receive(ctx)
				if err != nil {
					return
				}
				assert.NoError(t, c.Ack(msg))
				mu.Lock()
				if string(msg.Payload()) == msg.Key() {
					fresh[msg.Key()] = true
				}
				if len(fresh) == keys {
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	receiving.Wait()
	require.Len(t, fresh, keys, "keys that got what is new")
}
