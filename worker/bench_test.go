//go:build unix

package worker_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// filled returns a Consumer of a new topic with n messages of 64 keys.
func filled(b *testing.B, n int) *redelivery.Consumer {
	s := newSite(b)
	producer, err := s.client.CreateProducer(pulsar.ProducerOptions{Topic: s.topic})
	require.NoError(b, err)
	defer producer.Close()
	for i := range n {
		producer.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: make([]byte, 100), Key: fmt.Sprint(i % 64)},
			func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
	}
	require.NoError(b, producer.FlushWithCtx(context.Background()))
	return s.subscribe(pulsar.ConsumerOptions{Type: pulsar.Shared})
}

// work runs a Worker until n messages are handled, and returns how long that took.
func work(b *testing.B, c *redelivery.Consumer, n, concurrency int, takes time.Duration, options ...worker.Option) (took time.Duration) {
	defer c.Close()
	ctx, cancel := context.WithCancel(context.Background())
	var handled atomic.Int64
	var began time.Time
	w, err := worker.New(c, func(context.Context, pulsar.Message) error {
		if takes > 0 {
			time.Sleep(takes)
		}
		if handled.Add(1) == int64(n) {
			took = time.Since(began)
			cancel()
		}
		return nil
	}, append(options, worker.WithConcurrency(concurrency), worker.WithLogger(quiet))...)
	require.NoError(b, err)
	began = time.Now()
	require.NoError(b, w.Run(ctx))
	return took
}

// byHand receives and acknowledges n messages in loops written by hand, and returns the time until the last one was
// received.
func byHand(b *testing.B, c *redelivery.Consumer, n, loops int) (took time.Duration) {
	defer c.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var handled atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for range loops {
		all.Go(func() {
			for {
				msg, err := c.Receive(ctx)
				if err != nil {
					return
				}
				last := handled.Add(1) == int64(n)
				if last {
					took = time.Since(began)
				}
				if c.Ack(msg) != nil || last {
					cancel()
				}
			}
		})
	}
	all.Wait()
	require.EqualValues(b, n, handled.Load())
	return took
}

// BenchmarkBesideByHand compares a Worker whose handlers do nothing with loops of Receive and Ack on the same kind of
// Consumer, in alternate rounds. The ratios compare the Worker's throughput with that of the loops, by the clock and by
// the CPU time of this process. Trust the latter if other processes are at work.
func BenchmarkBesideByHand(b *testing.B) {
	for _, handlers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("handlers=%d", handlers), func(b *testing.B) {
			const n = 50_000
			var ratios, ofCPU, hand, loop []float64
			measure := func(run func(*redelivery.Consumer) time.Duration) (took, cpu float64) {
				c := filled(b, n)
				before := cpuTime(b)
				took = float64(run(c)) / n
				return took, float64(cpuTime(b)-before) / n
			}
			for i := range b.N {
				var h, l, hCPU, lCPU float64
				byHand := func() {
					h, hCPU = measure(func(c *redelivery.Consumer) time.Duration { return byHand(b, c, n, handlers) })
				}
				if i%2 == 0 {
					byHand()
				}
				l, lCPU = measure(func(c *redelivery.Consumer) time.Duration { return work(b, c, n, handlers, 0) })
				if i%2 == 1 {
					byHand()
				}
				ratios, ofCPU, hand, loop = append(ratios, h/l), append(ofCPU, hCPU/lCPU), append(hand, h), append(loop, l)
			}
			b.ReportMetric(median(ratios), "of-hand")
			b.ReportMetric(median(ofCPU), "of-hand-by-CPU")
			b.ReportMetric(median(hand), "hand-ns/msg")
			b.ReportMetric(median(loop), "worker-ns/msg")
		})
	}
}

// cpuTime is the CPU time that this process has used until now.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkScaling runs handlers that take a millisecond, one to eight at a time, with and without key order.
func BenchmarkScaling(b *testing.B) {
	for name, options := range map[string][]worker.Option{"": nil, "/by key": {worker.WithKeyOrder()}} {
		for _, concurrency := range []int{1, 2, 4, 8} {
			b.Run(fmt.Sprintf("concurrency=%d%s", concurrency, name), func(b *testing.B) {
				const n = 2000
				var took time.Duration
				for range b.N {
					took += work(b, filled(b, n), n, concurrency, time.Millisecond, options...)
				}
				b.ReportMetric(float64(n*b.N)/took.Seconds(), "msg/s")
			})
		}
	}
}

// BenchmarkKeyOrder runs a Worker in key order, with 64 keys and handlers that do nothing.
func BenchmarkKeyOrder(b *testing.B) {
	const n = 50_000
	var took time.Duration
	for range b.N {
		took += work(b, filled(b, n), n, 8, 0, worker.WithKeyOrder())
	}
	b.ReportMetric(float64(took.Nanoseconds())/float64(n*b.N), "ns/msg")
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}
