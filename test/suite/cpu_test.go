//go:build unix

package suite

import (
	"context"
	"sort"
	"syscall"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
)

// BenchmarkReceiveAck prints the CPU time of this process for each message received and acknowledged: of a plain consumer,
// and the median of what this library's takes more in each of seven rounds, with an ack timeout and without. It needs a
// broker and takes its own number of messages.
func BenchmarkReceiveAck(b *testing.B) {
	const messages, pairs = 100_000, 5
	broker := newBroker(b)
	for name, batched := range map[string]bool{"single": false, "batched": true} {
		b.Run(name, func(b *testing.B) {
			topic := broker.topic(0)
			opts := broker.options(topic, pulsar.Shared)
			var plain, more, moreWithTimeout []float64
			for range pairs {
				c, err := broker.client.Subscribe(opts)
				require.NoError(b, err)
				plain = append(plain, cpuPerMessage(b, broker, c, topic, messages, batched))
				p := plain[len(plain)-1]
				c, err = redelivery.Subscribe(broker.client, opts)
				require.NoError(b, err)
				more = append(more, cpuPerMessage(b, broker, c, topic, messages, batched)-p)
				c, err = redelivery.Subscribe(broker.client, opts, redelivery.WithAckTimeout(time.Minute))
				require.NoError(b, err)
				moreWithTimeout = append(moreWithTimeout, cpuPerMessage(b, broker, c, topic, messages, batched)-p)
			}
			b.ReportMetric(0, "ns/op")
			for what, values := range map[string][]float64{"plain": plain, "more": more, "more-with-ack-timeout": moreWithTimeout} {
				sort.Float64s(values)
				b.ReportMetric(values[pairs/2], what+"-ns/message")
			}
		})
	}
}

// cpuPerMessage has n messages published, receives and acknowledges them and closes the consumer.
func cpuPerMessage(b *testing.B, broker *broker, c pulsar.Consumer, topic string, n int, batched bool) float64 {
	defer c.Close()
	if batched {
		for range n / 1000 {
			broker.send(topic, 1000, true)
		}
	} else {
		broker.send(topic, n, false)
	}
	begin := cpu()
	for range n {
		msg, err := c.Receive(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		if err := c.Ack(msg); err != nil {
			b.Fatal(err)
		}
	}
	return float64(cpu()-begin) / float64(n)
}

// cpu returns the CPU time that this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
