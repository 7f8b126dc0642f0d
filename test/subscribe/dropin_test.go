package subscribe

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

func TestNonPersistentTopicsPassThrough(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := "non-" + b.NewTopic(0)
	var log bytes.Buffer
	opts := b.Options(topic, pulsar.Shared)
	opts.NackRedeliveryDelay = 10 * time.Millisecond
	c := b.Subscribe(opts, testkit.LogTo(&log), redelivery.WithAckTimeout(100*time.Millisecond))
	require.Contains(t, log.String(), topic)
	b.AwaitPermits(topic)
	b.Send(topic, 3, false)
	c.Nack(testkit.Receive(t, c))
	require.NoError(t, c.NackWithDelay(testkit.Receive(t, c), 0))
	require.NoError(t, c.Ack(testkit.Receive(t, c)))
	testkit.ReceiveNothing(t, c, 500*time.Millisecond)
	require.Zero(t, c.Stats().Waiting)
	require.Zero(t, c.Stats().Failed)
	b.Send(topic, 1, false)
	require.NoError(t, c.Ack(testkit.Receive(t, c)))
	opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 3}
	_, err := redelivery.Subscribe(b.Client, opts)
	require.ErrorIs(t, err, redelivery.ErrInvalidOption)
}

func TestUpstreamRefusesZeroQueueWithRetries(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	opts := b.Options(b.NewTopic(0), pulsar.Shared)
	opts.EnableZeroQueueConsumer, opts.RetryEnable = true, true
	_, want := b.Client.Subscribe(opts)
	require.Error(t, want)
	for _, policy := range []*pulsar.DLQPolicy{nil, {MaxDeliveries: 3}} {
		opts.DLQ = policy
		_, err := redelivery.Subscribe(b.Client, opts)
		require.EqualError(t, err, want.Error())
	}
	opts.RetryEnable = false
	_, err := redelivery.Subscribe(b.Client, opts, redelivery.WithReconsumeBackoff(backoff.Fixed(time.Second)))
	require.ErrorIs(t, err, redelivery.ErrInvalidOption)
}

// Through an embedded field, a new method of upstream would bypass the Consumer's bookkeeping. Without such a field,
// the Consumer does not compile until the method is written: see TestANewMethodOfUpstreamFailsToCompile in
// test/upstream.
func TestConsumerEmbedsNothing(t *testing.T) {
	var _ pulsar.Consumer = (*redelivery.Consumer)(nil)
	consumer := reflect.TypeFor[redelivery.Consumer]()
	for i := range consumer.NumField() {
		require.False(t, consumer.Field(i).Anonymous, consumer.Field(i).Name)
	}
}

// The consumer has retries or dead letters.
func TestNonPersistentTopicAmongOthersIsRefused(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	opts := b.Options(b.NewTopic(0), pulsar.Shared)
	opts.Topic, opts.Topics = "", []string{opts.Topic, "non-persistent://public/default/other"}
	opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 2, DeadLetterTopic: "dead"}
	_, err := redelivery.Subscribe(b.Client, opts)
	require.ErrorIs(t, err, redelivery.ErrInvalidOption)
	require.ErrorContains(t, err, "non-persistent://public/default/other")
}
