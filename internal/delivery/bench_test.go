package delivery

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/delayqueue"
)

type benchID struct {
	pulsar.MessageID
	entry       int64
	index, size int32
}

func (id *benchID) LedgerID() int64     { return 1 }
func (id *benchID) EntryID() int64      { return id.entry }
func (id *benchID) BatchIdx() int32     { return id.index }
func (id *benchID) BatchSize() int32    { return id.size }
func (id *benchID) PartitionIdx() int32 { return 0 }

type benchMessage struct {
	pulsar.Message
	id *benchID
}

func (m *benchMessage) ID() pulsar.MessageID    { return m.id }
func (m *benchMessage) Topic() string           { return "topic" }
func (m *benchMessage) RedeliveryCount() uint32 { return 0 }
func (m *benchMessage) Payload() []byte         { return nil }

// world is a table with its queue, as a Consumer has them.
type world struct {
	table *Table
	queue *delayqueue.Queue[Ref]
	ids   []benchID
	now   time.Time
	msg   benchMessage
}

func newWorld(n int, size int32) *world {
	w := &world{table: New(Options{RequestTimeout: RequestTimeout}), ids: make([]benchID, n), now: time.Now()}
	w.queue = delayqueue.New(func([]Ref) {}, false)
	for i := range w.ids {
		w.ids[i] = benchID{nil, int64(i) / int64(size), int32(i) % size, size}
	}
	return w
}

func (w *world) arrive(i int) {
	w.msg.id = &w.ids[i]
	w.table.Arrive(pulsar.ConsumerMessage{Message: &w.msg}, w.now)
}

func (w *world) nack(i int) {
	if ref, a, ok := w.table.Nack(&w.ids[i], time.Hour<<(i%10), w.now); ok {
		w.queue.Put(ref, a.Again)
	}
}

func (w *world) settle(i int) {
	s, _ := w.table.Settle(&w.ids[i])
	w.table.Settled(s, nil, w.now)
	w.queue.Remove(s.Ref)
}

// forget ends the time for which settled entries are remembered.
func (w *world) forget() {
	for _, ref := range w.table.Forget {
		w.table.Due(ref, w.now)
	}
	w.table.Forget = w.table.Forget[:0]
}

func heapAlloc() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// BenchmarkWaiting has what a message costs that waits, beyond its id: memory, and the time of its way through table and
// queue while many wait.
func BenchmarkWaiting(b *testing.B) {
	for _, n := range []int{50_000, 200_000, 1_000_000} {
		for _, size := range []int32{1, 100} {
			b.Run(fmt.Sprintf("waiting=%d/batch=%d", n, size), func(b *testing.B) { benchmarkWaiting(b, n, size) })
		}
	}
}

func benchmarkWaiting(b *testing.B, n int, size int32) {
	w := newWorld(n, size)
	defer w.queue.Close()
	empty := heapAlloc()
	for i := range n {
		w.arrive(i)
		w.nack(i)
	}
	full := heapAlloc()
	order := rand.Perm(n / int(size)) // of entries
	var settle, arrive, nack time.Duration
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; {
		round := min(1000, b.N-done)
		messages := func(do func(int)) time.Duration {
			begin := time.Now()
			for i := range round {
				at := (done + i) % n
				do(order[at/int(size)]*int(size) + at%int(size))
			}
			return time.Since(begin)
		}
		settle += messages(w.settle)
		w.forget()
		arrive += messages(w.arrive)
		nack += messages(w.nack)
		done += round
	}
	b.StopTimer()
	for i := range n {
		w.settle(i)
		w.forget()
	}
	after := heapAlloc()
	b.ReportMetric(float64(nack)/float64(b.N), "ns/nack")
	b.ReportMetric(float64(settle)/float64(b.N), "ns/settle")
	b.ReportMetric(float64(arrive)/float64(b.N), "ns/arrive")
	b.ReportMetric((full-empty)/float64(n), "bytes/message")
	b.ReportMetric((after-empty)/float64(n), "bytes/message-after")
	runtime.KeepAlive(w)
}
