package pulsartest

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

// BenchmarkMessages publishes, receives and acknowledges unbatched messages of 100 bytes.
func BenchmarkMessages(b *testing.B) {
	s := NewServer(b)
	c := newClient(b, s.URL())
	k := subscribe(b, c, pulsar.ConsumerOptions{Topic: "t", SubscriptionName: "s", Type: pulsar.Shared,
		ReceiverQueueSize: 1000})
	p := newProducer(b, c, pulsar.ProducerOptions{Topic: "t", DisableBatching: true, MaxPendingMessages: 1000})
	payload := make([]byte, 100)
	b.ResetTimer()
	go func() {
		for range b.N {
			p.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: payload},
				func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
		}
	}()
	for range b.N {
		m, err := k.Receive(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		if err := k.Ack(m); err != nil {
			b.Fatal(err)
		}
	}
	require.Eventually(b, func() bool { return s.Subscription("t", "s").Backlog == 0 }, 10*time.Second,
		time.Millisecond)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

// Start should take less than 5 ms and 1 MB of heap.
func BenchmarkStart(b *testing.B) {
	before := heapAlloc()
	s, err := Start()
	require.NoError(b, err)
	used := max(heapAlloc(), before) - before
	s.Close()
	for b.Loop() {
		s, err := Start()
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		s.Close()
		b.StartTimer()
	}
	b.ReportMetric(float64(used)/1024, "KB-heap")
}

func heapAlloc() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
