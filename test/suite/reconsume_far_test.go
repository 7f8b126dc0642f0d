package suite

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
)

// A broker that is silent for seven seconds gets each retry once, and nobody is told that it refused one.
func TestRetriesOfASilentBroker(t *testing.T) {
	t.Parallel()
	const n = 200
	b := newBroker(t)
	b, wire := behind(t, b, 0)
	topic := b.topic(0)
	opts := b.retrying(topic, 5)
	opts.AckWithResponse = true
	c := b.subscribe(opts)
	b.send(topic, n+1, false)
	var msgs []pulsar.Message
	for range n + 1 {
		msgs = append(msgs, receive(t, c))
	}
	require.NoError(t, c.ReconsumeLaterAfter(bg, msgs[n], time.Second, nil)) // there is a producer
	goOn := wire.Stop()
	var calls sync.WaitGroup
	for _, msg := range msgs[:n] {
		calls.Go(func() { assert.NoError(t, c.ReconsumeLaterAfter(bg, msg, 2*time.Second, nil)) })
	}
	time.Sleep(7 * time.Second)
	goOn()
	calls.Wait()
	seen := map[string]int{}
	drain(t, c, 4*time.Second, func(msg pulsar.Message) {
		seen[string(msg.Payload())]++
		require.NoError(t, c.Ack(msg))
	})
	require.Len(t, seen, n+1)
	for payload, times := range seen {
		require.Equal(t, 1, times, payload)
	}
}

// TestReconsumesAsFastAsUpstream compares the rates at a round trip of 100 ms, from the first call to the last
// acknowledgement. It counts the best of a few attempts, as TestPublishesAsFastAsUpstream.
func TestReconsumesAsFastAsUpstream(t *testing.T) {
	needsRealBroker(t, "its speed is compared")
	b := newBroker(t)
	best := map[string]time.Duration{"plain": time.Hour, "wrapped": time.Hour, "callback": time.Hour}
	for attempt := 1; ; attempt++ {
		for name, took := range best {
			best[name] = min(took, b.reconsumesFar(name))
		}
		t.Logf("2,000 retries at a round trip of 100 ms: %v", best)
		if noise := best["plain"] / 4; max(best["wrapped"], best["callback"]) <= best["plain"]+noise {
			return
		}
		require.Less(t, attempt, 5, "none of the attempts was as fast as upstream")
	}
}

// reconsumesFar returns how long it takes until the backlog of 2,000 messages is empty and all of them are retries.
func (b *broker) reconsumesFar(name string) time.Duration {
	const n = 2000
	topic := b.topic(0)
	far, _ := behind(b.t, b, 100*time.Millisecond)
	opts := far.retrying(topic, 5)
	opts.ReceiverQueueSize = 2 * n
	var c pulsar.Consumer
	var published atomic.Int32
	published.Store(n)
	later := func(msg pulsar.Message) { c.ReconsumeLater(msg, time.Hour) }
	if name != "plain" {
		wrapped := far.subscribe(opts)
		c = wrapped
		if name == "callback" {
			later = func(msg pulsar.Message) {
				done := redelivery.WithCallback(func(err error) {
					assert.NoError(b.t, err)
					published.Add(-1)
				})
				assert.NoError(b.t, wrapped.ReconsumeLaterAfter(bg, msg, time.Hour, nil, done))
			}
		}
	} else {
		plain, err := far.client.Subscribe(opts)
		require.NoError(b.t, err)
		c = plain
	}
	defer c.Close()
	b.send(topic, n, false)
	var msgs []pulsar.Message
	for range n {
		msgs = append(msgs, next(b.t, c, 10*time.Second))
	}
	began := time.Now()
	for _, msg := range msgs {
		later(msg)
	}
	calls := time.Since(began)
	for b.stats(retryTopic(topic), 0).Backlog < n || b.stats(topic, 0).Backlog > 0 {
		time.Sleep(ms(10))
	}
	took := time.Since(began)
	b.t.Logf("%s: the calls %v, all published and acknowledged %v", name, calls, took)
	if name == "callback" {
		require.Eventually(b.t, func() bool { return published.Load() == 0 }, time.Second, ms(10))
	}
	return took
}
