package retry

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/wiretest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// behind returns a copy of b whose client connects through a wire with a round trip, and the wire.
func behind(t testing.TB, b *testkit.Broker, roundTrip time.Duration) (*testkit.Broker, *wiretest.Wire) {
	t.Helper()
	target := strings.TrimPrefix(b.URL, "pulsar://")
	w := wiretest.New(t, target, roundTrip)
	require.Len(t, w.Addr, len(target), "the wire's address replaces the broker's and must be as long")
	far := *b
	far.URL = "pulsar://" + w.Addr
	far.Connect(pulsar.ClientOptions{})
	return &far, w
}

// The broker is silent for seven seconds. No call returns an error.
func TestSilentBrokerGetsEachRetryOnce(t *testing.T) {
	testkit.TakesLong(t)
	t.Parallel()
	const n = 200
	b := testkit.NewBroker(t)
	b, wire := behind(t, b, 0)
	topic := b.NewTopic(0)
	opts := b.RetryOptions(topic, 5)
	opts.AckWithResponse = true
	c := b.Subscribe(opts)
	b.Send(topic, n+1, false)
	var msgs []pulsar.Message
	for range n + 1 {
		msgs = append(msgs, testkit.Receive(t, c))
	}
	require.NoError(t, c.ReconsumeLaterAfter(context.Background(), msgs[n], time.Second, nil)) // creates the producer
	goOn := wire.Stop()
	var calls sync.WaitGroup
	for _, msg := range msgs[:n] {
		calls.Go(func() { assert.NoError(t, c.ReconsumeLaterAfter(context.Background(), msg, 2*time.Second, nil)) })
	}
	time.Sleep(7 * time.Second)
	goOn()
	calls.Wait()
	seen := map[string]int{}
	testkit.Drain(t, c, 4*time.Second, func(msg pulsar.Message) {
		seen[string(msg.Payload())]++
		require.NoError(t, c.Ack(msg))
	})
	require.Len(t, seen, n+1)
	for payload, times := range seen {
		require.Equal(t, 1, times, payload)
	}
}

// The times are from the first call to the last acknowledgement, at a round trip of 100 ms. The best of a few attempts
// counts, as in TestPublishesAreAsFastAsUpstream. The first message takes one more round trip: it goes alone, since the
// broker may refuse its delay.
func TestReconsumesAreAsFastAsUpstream(t *testing.T) {
	testkit.NeedsRealBroker(t, "comparable speed")
	b := testkit.NewBroker(t)
	best := map[string]time.Duration{"plain": time.Hour, "wrapped": time.Hour, "callback": time.Hour}
	for attempt := 1; ; attempt++ {
		for name, took := range best {
			best[name] = min(took, reconsumesFar(b, name))
		}
		t.Logf("2,000 retries at a round trip of 100 ms: %v", best)
		noise, first := best["plain"]/4, 100*time.Millisecond
		if max(best["wrapped"], best["callback"]) <= best["plain"]+noise+first {
			return
		}
		require.Less(t, attempt, 5, "none of the attempts was as fast as upstream")
	}
}

// reconsumesFar returns how long it takes to publish 2,000 messages as retries and acknowledge them.
func reconsumesFar(b *testkit.Broker, name string) time.Duration {
	const n = 2000
	topic := b.NewTopic(0)
	far, _ := behind(b.T, b, 100*time.Millisecond)
	opts := far.RetryOptions(topic, 5)
	opts.ReceiverQueueSize = 2 * n
	var c pulsar.Consumer
	var published atomic.Int32
	published.Store(n)
	later := func(msg pulsar.Message) { c.ReconsumeLater(msg, time.Hour) }
	if name != "plain" {
		wrapped := far.Subscribe(opts)
		c = wrapped
		if name == "callback" {
			later = func(msg pulsar.Message) {
				done := redelivery.WithCallback(func(err error) {
					assert.NoError(b.T, err)
					published.Add(-1)
				})
				assert.NoError(b.T, wrapped.ReconsumeLaterAfter(context.Background(), msg, time.Hour, nil, done))
			}
		}
	} else {
		plain, err := far.Client.Subscribe(opts)
		require.NoError(b.T, err)
		c = plain
	}
	defer c.Close()
	b.Send(topic, n, false)
	var msgs []pulsar.Message
	for range n {
		msgs = append(msgs, testkit.Next(b.T, c, 10*time.Second))
	}
	began := time.Now()
	for _, msg := range msgs {
		later(msg)
	}
	calls := time.Since(began)
	for b.Stats(testkit.RetryTopic(topic), 0).Backlog < n || b.Stats(topic, 0).Backlog > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	took := time.Since(began)
	b.T.Logf("%s: the calls took %v; all messages were published and acknowledged after %v", name, calls, took)
	if name == "callback" {
		require.Eventually(b.T, func() bool { return published.Load() == 0 }, time.Second, 10*time.Millisecond)
	}
	return took
}
