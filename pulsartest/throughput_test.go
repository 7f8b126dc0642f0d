package pulsartest

import (
	"context"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

// BenchmarkMessages produces, consumes and acknowledges unbatched messages of
// 100 bytes, one at a time for the broker.
func BenchmarkMessages(b *testing.B) {
	s := NewServer(b)
	c := newClient(b, s.URL())
	k := subscribe(b, c, pulsar.ConsumerOptions{Topic: "t", SubscriptionName: "s", Type: pulsar.Shared, ReceiverQueueSize: 1000})
	p := newProducer(b, c, pulsar.ProducerOptions{Topic: "t", DisableBatching: true, MaxPendingMessages: 1000})
	payload := make([]byte, 100)
	b.ResetTimer()
	go func() {
		for range b.N {
			p.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: payload}, func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
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
	require.Eventually(b, func() bool { return s.Subscription("t", "s").Backlog == 0 }, 10*time.Second, time.Millisecond)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		s, err := Start()
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}

func TestStartIsFastAndSmall(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	best, used := time.Hour, uint64(0)
	for range 5 { // other tests, or other processes, may be in the way
		before, began := heap(), time.Now()
		s, err := Start()
		took := time.Since(began)
		require.NoError(t, err)
		after := heap()
		s.Close()
		if took < best {
			best, used = took, max(after, before)-before
		}
	}
	t.Logf("started in %v with %d KB of heap", best, used/1024)
	require.Less(t, best, 5*time.Millisecond)
	require.Less(t, used, uint64(1<<20))
}

// A longer run than a benchmark's, for a look at the figure; it needs a calm machine.
func TestThroughput(t *testing.T) {
	if os.Getenv("PULSARTEST_THROUGHPUT") == "" {
		t.Skip("PULSARTEST_THROUGHPUT is not set")
	}
	r := testing.Benchmark(BenchmarkMessages)
	t.Logf("%v", r)
	require.Greater(t, r.Extra["msg/s"], 40_000.0)
}
