package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// A key of one topic does not wait for the same key of another topic. Partitions of a topic are one topic.
func TestKeyOrderIsPerTopic(t *testing.T) {
	opts := orders
	opts.Topic, opts.Topics = "", []string{"orders-partition-0", "orders-partition-1", "payments"}
	virtually(t, opts, func(t *rig) {
		var d = diary{began: time.Now()}
		_, stop := t.start(d.takesASecond, worker.WithKeyOrder(), worker.WithConcurrency(3))
		for topic, payload := range map[string]string{"orders-partition-0": "order", "orders-partition-1": "order", "payments": "payment"} {
			t.broker.Publish(topic, &pulsar.ProducerMessage{Payload: []byte(payload), Key: "7"})
		}
		t.sleep(time.Minute)
		require.NoError(t, stop())
		require.ElementsMatch(t, []string{"0s order 0", "0s payment 0", "1s order 0"}, d.all())
	})
}

// WithAckTimeout does not apply to messages of a non-persistent topic.
func TestMessageOfANonPersistentTopicThatWaitsForItsKeyIsHandled(t *testing.T) {
	opts := orders
	opts.Topic = "non-persistent://public/default/orders"
	virtually(t, opts, func(t *rig) {
		var d = diary{began: time.Now()}
		_, stop := t.start(d.takesASecond, worker.WithKeyOrder(), worker.WithConcurrency(3))
		for _, payload := range []string{"a", "b", "c"} {
			t.broker.Publish(opts.Topic, &pulsar.ProducerMessage{Payload: []byte(payload), Key: "7"})
		}
		t.sleep(time.Minute)
		require.NoError(t, stop())
		require.Equal(t, []string{"0s a 0", "1s b 0", "2s c 0"}, d.all())
	}, redelivery.WithAckTimeout(10*time.Second))
}

// takesASecond is a handler that notes its message and takes a second.
func (d *diary) takesASecond(_ context.Context, msg pulsar.Message) error {
	d.note(msg)
	time.Sleep(time.Second)
	return nil
}
