package delayqueue

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
)

// benchKey is as large as the keys of the trackers in a Consumer.
type benchKey struct{ entry, index uint32 }

var benchSizes = []int{50_000, 200_000, 1_000_000}

// delays are those of policies: a fixed one, one that doubles, one with jitter.
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

// BenchmarkPutRemove puts keys beside many that wait and removes as many, so that their number stays: the keys just put,
// or those that wait, in random order.
func BenchmarkPutRemove(b *testing.B) {
	for _, n := range benchSizes {
		for name, delay := range delays {
			for _, random := range []bool{false, true} {
				b.Run(fmt.Sprintf("waiting=%d/delays=%s/random=%t", n, name, random), func(b *testing.B) {
					benchmarkPutRemove(b, n, delay, random)
				})
			}
		}
	}
}

func benchmarkPutRemove(b *testing.B, n int, delay func(int) time.Duration, random bool) {
	before := heapAlloc()
	q := New(func([]benchKey) {}, false)
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
			index := uint32((done+i)/n + 1)
			if random {
				index--
			}
			q.Remove(benchKey{uint32(order[(done+i)%n]), index})
		}
		put, remove = put+middle.Sub(begin), remove+time.Since(middle)
		done += round
	}
	b.StopTimer()
	b.ReportMetric(float64(put)/float64(b.N), "ns/put")
	b.ReportMetric(float64(remove)/float64(b.N), "ns/remove")
	b.ReportMetric(bytes, "bytes/key")
}

// BenchmarkAllDue has all keys due at once, while another goroutine puts and removes one.
func BenchmarkAllDue(b *testing.B) {
	for _, n := range benchSizes {
		for name, delay := range delays {
			b.Run(fmt.Sprintf("waiting=%d/delays=%s", n, name), func(b *testing.B) {
				var all time.Duration
				var blocked []time.Duration
				for range b.N {
					took, some := allDue(n, delay)
					all, blocked = all+took, append(blocked, some...)
				}
				slices.Sort(blocked)
				b.ReportMetric(all.Seconds()/float64(b.N)*1e3, "ms/hand-over")
				b.ReportMetric(float64(all.Nanoseconds())/float64(b.N)/float64(n), "ns/key")
				b.ReportMetric(blocked[len(blocked)*99/100].Seconds()*1e3, "ms/block-p99")
				b.ReportMetric(blocked[len(blocked)-1].Seconds()*1e3, "ms/block-max")
			})
		}
	}
}

func allDue(n int, delay func(int) time.Duration) (took time.Duration, blocked []time.Duration) {
	handed := 0
	due, done := make(chan struct{}), make(chan struct{})
	q := New(func(keys []benchKey) {
		<-due
		if handed += len(keys); handed == n {
			close(done)
		}
	}, false)
	defer q.Close()
	for i := range n {
		q.Put(benchKey{uint32(i), 0}, delay(i)/(time.Hour/time.Millisecond))
	}
	time.Sleep(600 * time.Millisecond) // the longest of the delays
	begin := time.Now()
	close(due)
	for {
		select {
		case <-done:
			return time.Since(begin), blocked
		default:
		}
		begin := time.Now()
		q.Put(benchKey{0, 1}, time.Hour)
		q.Remove(benchKey{0, 1})
		blocked = append(blocked, time.Since(begin))
		time.Sleep(100 * time.Microsecond)
	}
}
