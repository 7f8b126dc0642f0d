//go:build unix

package ack

import (
	"context"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/metrics"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// BenchmarkReceiveAck measures the cost of receiving and acknowledging a message with a plain consumer and with three
// Consumers of this library. In each of b.N rounds each of the four gets the same number of messages. The benchmark
// reports medians of the process's CPU time, of its ratio to that of the plain consumer in the same round, and of
// allocations, which other processes hardly disturb, and of the throughput. Use a real broker: the work of a broker in
// process would count, too. Run it with -benchtime 5x.
func BenchmarkReceiveAck(b *testing.B) {
	const messages = 50_000
	m, err := metrics.New(prometheus.NewRegistry())
	require.NoError(b, err)
	kinds := []struct {
		name    string
		options []redelivery.Option
	}{{"plain", nil}, {"default", nil}, {"ack-timeout", []redelivery.Option{redelivery.WithAckTimeout(time.Minute)}}, {"metrics", []redelivery.Option{m.Observe()}}}
	for name, batched := range map[string]bool{"batched": true, "batched, index acks": true, "single": false} {
		b.Run(name, func(b *testing.B) {
			broker := testkit.NewBroker(b)
			topic := broker.NewTopic(0)
			opts := broker.Options(topic, pulsar.Shared)
			opts.EnableBatchIndexAcknowledgment = name == "batched, index acks"
			var same []redelivery.Option // makes the Consumer's settings equal to the plain consumer's
			if !opts.EnableBatchIndexAcknowledgment {
				same = append(same, redelivery.WithoutBatchIndexAcks())
			}
			values := map[string][]float64{}
			for round := range b.N {
				var costs [4]cost
				for i := range kinds {
					k := (i + round) % len(kinds)
					var c pulsar.Consumer
					if k == 0 {
						c, err = broker.Client.Subscribe(opts)
					} else {
						c, err = redelivery.Subscribe(broker.Client, opts, append(same, kinds[k].options...)...)
					}
					require.NoError(b, err)
					costs[k] = costOf(b, broker, c, topic, messages, batched)
				}
				for k, c := range costs {
					for unit, value := range map[string]float64{"-ns": c.cpu, "-times": c.cpu / costs[0].cpu, "-throughput": costs[0].wall / c.wall, "-allocs": c.allocs} {
						unit = kinds[k].name + unit
						values[unit] = append(values[unit], value)
					}
				}
			}
			b.ReportMetric(0, "ns/op")
			for unit, of := range values {
				slices.Sort(of)
				b.ReportMetric(of[len(of)/2], unit)
			}
		})
	}
}

// cost is the cost of a message.
type cost struct{ cpu, wall, allocs float64 }

// costOf publishes n messages, receives and acknowledges them, and closes the consumer.
func costOf(b *testing.B, broker *testkit.Broker, c pulsar.Consumer, topic string, n int, batched bool) cost {
	defer c.Close()
	if batched {
		for range n / 1000 {
			broker.Send(topic, 1000, true)
		}
	} else {
		broker.Send(topic, n, false)
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began, used := time.Now(), cpu()
	for range n {
		msg, err := c.Receive(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		if err := c.Ack(msg); err != nil {
			b.Fatal(err)
		}
	}
	took := cost{cpu: float64(cpu() - used), wall: float64(time.Since(began))}
	runtime.ReadMemStats(&after)
	return cost{took.cpu / float64(n), took.wall / float64(n), float64(after.Mallocs-before.Mallocs) / float64(n)}
}

// cpu returns the CPU time that this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
