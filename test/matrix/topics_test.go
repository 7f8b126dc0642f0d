package matrix

import (
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// compact publishes an old value for each key, and then the feature's messages. Then it compacts the topic, which
// removes the old values.
func (x *cell) compact(f feature) {
	n := cellMessages
	if f.batched {
		n = 3
	}
	if x.InProcess == nil { // the broker in process does not compact
		x.kind.message = func(string) *pulsar.ProducerMessage { return &pulsar.ProducerMessage{Payload: []byte("old")} }
		x.publish(n, false)
		x.kind.message = nil
	}
	x.publish(n, f.batched)
	x.published = true
	if x.InProcess == nil {
		x.Admin("PUT", x.topics[0], "/compaction", nil, nil)
		require.Eventually(x.t, func() bool {
			var state struct{ Status string }
			x.Admin("GET", x.topics[0], "/compaction", nil, &state)
			return state.Status == "SUCCESS"
		}, testkit.Patience, 50*time.Millisecond)
	}
}

// The functions below change topics while the consumer runs.

func discovering(o *pulsar.ConsumerOptions) { o.AutoDiscoveryPeriod = time.Second }

// The period is longer than a real broker needs to add partitions. If upstream tries to subscribe to a new partition
// too soon, it silently closes the consumers of all other partitions.
func discoveringSlowly(o *pulsar.ConsumerOptions) {
	o.AutoDiscoveryPeriod = time.Second
	if testkit.HasRealBroker() {
		o.AutoDiscoveryPeriod = 10 * time.Second
	}
}

// found waits until the consumer has subscribed to all topics, since the broker may not list a new topic at once.
func found(x *cell) {
	for _, topic := range x.topics {
		x.subscribed(topic)
	}
}

func addPartitions(x *cell) {
	x.Admin("POST", x.topics[0], "/partitions", 3, nil)
	x.kind.partitions = 3
	x.subscribed(x.topics[0] + "-partition-2")
}

func appear(x *cell) {
	found(x)
	for range 2 {
		x.addTopic()
		x.subscribed(x.topics[len(x.topics)-1])
	}
}

// vanish removes a topic with unacknowledged and nacked messages.
func vanish(x *cell) {
	found(x)
	x.publish(3*2, false)
	for seen := map[string]bool{}; len(seen) < 3*2; {
		msg := x.receive()
		seen[x.text(msg)] = true
		switch i := x.text(msg)[0] - '0'; {
		case i%3 != 2: // the message's topic is not removed
			require.NoError(x.t, x.c.Ack(msg))
		case i == 2:
			require.NoError(x.t, x.c.NackWithDelay(msg, 200*time.Millisecond))
		}
	}
	x.Admin("DELETE", x.topics[2], "?force=true", nil, nil)
	x.removed, x.topics = x.topics[2:], x.topics[:2]
}

// subscribed waits until the topic's subscription has a consumer.
func (x *cell) subscribed(topic string) {
	x.t.Helper()
	require.Eventually(x.t, func() bool {
		var stats struct {
			Subscriptions map[string]struct{ Consumers []any }
		}
		x.Admin("GET", topic, "/stats", nil, &stats)
		return len(stats.Subscriptions[testkit.Subscription].Consumers) > 0
	}, testkit.Patience, 50*time.Millisecond, "%s was not discovered", strings.TrimPrefix(topic, x.topics[0]))
}
