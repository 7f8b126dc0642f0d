package worker_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// heap returns how many bytes of the heap are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// One message of each batch waits for a key that fails, and keeps the buffer of its whole batch alive: the heap grows
// by about the memory limit, not by the size of all 400 batches, which is 50 MB.
func TestKeyOrderKeepsTheHeapNearTheLimit(t *testing.T) {
	const batches, each, limit = 400, 200, 16 << 20
	s := newSite(t)
	if s.inProcess != nil { // the broker in process has its messages on the same heap
		t.Skip("80,000 messages: with PULSAR_URL")
	}
	opts := pulsar.ConsumerOptions{Type: pulsar.Exclusive}
	first := s.subscribe(opts)
	first.Close()
	producer, err := s.client.CreateProducer(pulsar.ProducerOptions{Topic: s.topic, BatchingMaxMessages: each, BatchingMaxSize: 1 << 20})
	require.NoError(t, err)
	payload := make([]byte, 600)
	for b := range batches {
		for i := range each {
			key := fmt.Sprint(b, " ", i)
			if i == 0 {
				key = "hot"
			}
			producer.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: payload, Key: key, Properties: map[string]string{"n": key}},
				func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
		}
		require.NoError(t, producer.FlushWithCtx(context.Background()))
	}
	producer.Close()
	before := heap()
	c := s.subscribe(opts, redelivery.WithNackRedeliveryDelay(time.Hour), redelivery.WithMemoryLimit(limit), redelivery.WithAckTimeout(time.Hour))
	var up atomic.Bool
	var handled atomic.Int64
	w, err := worker.New(c, func(_ context.Context, msg pulsar.Message) error {
		if msg.Key() == "hot" && !up.Load() {
			return worker.RetryAfter(4*time.Second, errTest)
		}
		handled.Add(1)
		return nil
	}, worker.WithKeyOrder(), worker.WithConcurrency(4), worker.WithLogger(quiet))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	returned := make(chan error, 1)
	go func() { returned <- w.Run(ctx) }()
	require.Eventually(t, func() bool { return w.Stats().Full }, 30*time.Second, 10*time.Millisecond)
	buffered, grown := c.Stats().BufferedBytes, heap()-before
	t.Logf("%d messages wait: %d KiB are counted, the heap grew by %d KiB", w.Stats().Waiting, buffered>>10, grown>>10)
	require.LessOrEqual(t, buffered, int64(limit))
	require.Less(t, grown, int64(2*limit)) // with the prefetched messages, and the ids of siblings
	up.Store(true)
	require.Eventually(t, func() bool { return handled.Load() == batches*each }, time.Minute, 10*time.Millisecond)
	cancel()
	require.NoError(t, waittest.Next(t, returned))
	require.Zero(t, c.Stats().BufferedBytes)
}
