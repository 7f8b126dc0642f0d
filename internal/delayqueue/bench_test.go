package delayqueue

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// benchKey is as large as the keys of the trackers in a Consumer.
type benchKey struct{ entry, index uint32 }

var benchSizes = []int{50_000, 200_000, 1_000_000}

// delays are those of the policies at work: a fixed one, 100ms·2^n, and one with jitter.
var delays = map[string]func(i int) time.Duration{
	"fixed":       func(int) time.Duration { return time.Hour },
	"exponential": func(i int) time.Duration { return time.Hour << (i * 7 % 10) },
	"jitter":      func(int) time.Duration { return time.Hour + time.Duration(rand.Int64N(int64(time.Hour))) },
}

func heapAlloc() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// BenchmarkPutRemove puts a key beside many that wait and removes one of those, in random order, so that their number
// stays.
func BenchmarkPutRemove(b *testing.B) {
	for _, n := range benchSizes {
		for name, delay := range delays {
			b.Run(fmt.Sprintf("waiting=%d/delays=%s", n, name), func(b *testing.B) {
				before := heapAlloc()
				q := New(func([]benchKey) {})
				defer q.Close()
				for i := range n {
					q.Put(benchKey{uint32(i), 0}, delay(i))
				}
				bytes := (heapAlloc() - before) / float64(n)
				order := rand.Perm(n)
				var put, remove time.Duration
				b.ReportAllocs()
				b.ResetTimer()
				for done := 0; done < b.N; {
					round := min(1000, b.N-done)
					begin := time.Now()
					for i := range round {
						q.Put(benchKey{uint32(order[(done+i)%n]), uint32((done+i)/n + 1)}, delay(i))
					}
					middle := time.Now()
					for i := range round {
						q.Remove(benchKey{uint32(order[(done+i)%n]), uint32((done + i) / n)})
					}
					put, remove = put+middle.Sub(begin), remove+time.Since(middle)
					done += round
				}
				b.StopTimer()
				b.ReportMetric(float64(put)/float64(b.N), "ns/put")
				b.ReportMetric(float64(remove)/float64(b.N), "ns/remove")
				b.ReportMetric(bytes, "bytes/key")
			})
		}
	}
}

// BenchmarkAllDue has all keys due at once, while another goroutine removes and puts others.
func BenchmarkAllDue(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprintf("waiting=%d", n), func(b *testing.B) {
			var all, worst time.Duration
			for range b.N {
				took, blocked := allDue(n)
				all, worst = all+took, max(worst, blocked)
			}
			b.ReportMetric(all.Seconds()/float64(b.N)*1e3, "ms/hand-over")
			b.ReportMetric(float64(all.Nanoseconds())/float64(b.N)/float64(n), "ns/key")
			b.ReportMetric(worst.Seconds()*1e3, "ms/longest-block")
		})
	}
}

func allDue(n int) (took, blocked time.Duration) {
	var handed atomic.Int64
	done := make(chan struct{})
	q := New(func(keys []benchKey) {
		if handed.Add(int64(len(keys))) == int64(n) {
			close(done)
		}
	})
	defer q.Close()
	due := time.Now().Add(time.Duration(n) * 2 * time.Microsecond)
	for i := range n {
		q.Put(benchKey{uint32(i), 0}, time.Until(due))
	}
	time.Sleep(time.Until(due))
	for {
		select {
		case <-done:
			return time.Since(due), blocked
		default:
		}
		begin := time.Now()
		q.Put(benchKey{0, 1}, time.Hour)
		q.Remove(benchKey{0, 1})
		blocked = max(blocked, time.Since(begin))
		time.Sleep(100 * time.Microsecond)
	}
}
