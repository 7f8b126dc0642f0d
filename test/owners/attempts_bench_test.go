package owners

import (
	"fmt"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// BenchmarkAttemptLog measures the cost of the log of attempts for messages that do not fail, and for messages that all
// fail once. With PULSAR_URL it uses a real broker.
func BenchmarkAttemptLog(b *testing.B) {
	for _, fails := range []bool{false, true} {
		for _, log := range []bool{false, true, false, true} {
			b.Run(fmt.Sprintf("fails %t, log %t", fails, log), func(b *testing.B) {
				br := testkit.NewBroker(b)
				topic := br.NewTopic(0)
				options := []redelivery.Option{redelivery.WithNackRedeliveryDelay(100 * time.Millisecond)}
				if log {
					options = append(options, redelivery.WithAttemptLog(redelivery.AttemptLog{}))
				}
				c := br.Subscribe(br.Options(topic, pulsar.Shared), options...)
				for range b.N/500 + 1 {
					br.Send(topic, min(b.N, 500), true)
				}
				b.ResetTimer()
				began := time.Now()
				for settled := 0; settled < b.N; {
					msg := testkit.Receive(b, c)
					if fails && msg.RedeliveryCount() == 0 {
						c.Nack(msg)
						continue
					}
					require.NoError(b, c.Ack(msg))
					settled++
				}
				b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "messages/s")
				b.StopTimer()
				c.Close()
			})
		}
	}
}
