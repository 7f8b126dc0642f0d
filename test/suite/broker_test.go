package suite

import (
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// permits returns how many messages the broker may still send to the consumers of a topic without partitions.
func permits(b *testkit.Broker, topic string) (sum int) {
	b.T.Helper()
	var stats struct {
		Subscriptions map[string]struct {
			Consumers []struct{ AvailablePermits int }
		}
	}
	b.Admin("GET", topic, "/stats", nil, &stats)
	for _, c := range stats.Subscriptions[testkit.Subscription].Consumers {
		sum += c.AvailablePermits
	}
	return sum
}
