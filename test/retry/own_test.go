package retry

import (
	"errors"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/reconsume"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// If the topic were its own retry or dead letter topic, messages would come again without end.
func TestOwnTopicInAnyFormIsRefused(t *testing.T) {
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
	full := "persistent://public/default/bills"
	for _, name := range []string{"bills", "public/default/bills", full, "bills-partition-0"} {
		opts := b.Options("", pulsar.Shared)
		opts.Topics = []string{"orders", full}
		retries := opts
		retries.RetryEnable, retries.DLQ = true, &pulsar.DLQPolicy{MaxDeliveries: 3, RetryLetterTopic: name}
		_, err := redelivery.Subscribe(b.Client, retries)
		require.ErrorIs(t, err, redelivery.ErrInvalidOption)
		require.ErrorContains(t, err, "the retry topic is "+topicname.Full(name))

		r, err := reconsume.New(b.Client,
			reconsume.Options{Topic: "orders", Subscription: testkit.Subscription, DeadLetterTopic: name})
		require.NoError(t, err)
		_, err = redelivery.Subscribe(b.Client, opts, redelivery.WithReconsumer(r))
		require.ErrorIs(t, err, redelivery.ErrInvalidOption)
		require.ErrorContains(t, err, "the dead letter topic is ")
		r.Close()

		opts.Topics, opts.Topic = nil, "bills"
		plain, err := b.Client.Subscribe(opts)
		require.NoError(t, err)
		_, err = redelivery.Wrap(plain, redelivery.WithClient(b.Client),
			redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 3, Topic: name}))
		require.ErrorIs(t, err, redelivery.ErrInvalidOption)
		require.ErrorContains(t, err, "the dead letter topic is "+topicname.Full(name))
		plain.Close()
	}
}

// The topic is the Reconsumer's retry topic.
func TestReconsumerMayPublishWhereTheConsumerReads(t *testing.T) {
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
	r, err := reconsume.New(b.Client, reconsume.Options{Topic: "orders", Subscription: testkit.Subscription})
	require.NoError(t, err)
	defer r.Close()
	opts := b.Options("", pulsar.Shared)
	opts.Topics = []string{"orders", r.RetryTopic()}
	b.Subscribe(opts, redelivery.WithReconsumer(r))
}

// Wrap does not know which topics its consumer reads. A message comes from the topic to which the Reconsumer publishes
// dead letters. DeadLetter publishes nothing and returns an error.
func TestWrapWithReconsumerOfItsOwnTopicPublishesNothing(t *testing.T) {
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
	for _, name := range []string{"bills", "persistent://public/default/bills", "bills-partition-0"} {
		r, err := reconsume.New(b.Client,
			reconsume.Options{Topic: "orders", Subscription: testkit.Subscription, DeadLetterTopic: name})
		require.NoError(t, err)
		plain, err := b.Client.Subscribe(b.Options("bills", pulsar.Shared))
		require.NoError(t, err)
		c, err := redelivery.Wrap(plain, redelivery.WithReconsumer(r), testkit.LogTo(t.Output()))
		require.NoError(t, err)
		b.Publish(pulsar.ProducerOptions{Topic: "bills"}, &pulsar.ProducerMessage{Payload: []byte(name)})
		msg, err := c.Receive(t.Context())
		require.NoError(t, err)
		require.ErrorContains(t, c.DeadLetter(t.Context(), msg, errors.New("no luck")),
			"the dead letter topic is "+topicname.Full(name))
		require.NoError(t, c.Ack(msg))
		c.Close()
		r.Close()
	}
}

// At once means when the consumer subscribes, not when the first dead letter is published. Short names and names of the
// old form are valid.
func TestBadDeadLetterTopicIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	opts := b.Options(b.NewTopic(0), pulsar.Shared)
	plain, err := b.Client.Subscribe(opts)
	require.NoError(t, err)
	defer plain.Close()
	opts.RetryEnable = true
	for _, topic := range []string{"http://x", "persistent://a//c", "a/b"} {
		dead := redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 2, Topic: topic})
		retry := redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 2, RetryTopic: topic})
		_, err := redelivery.Subscribe(b.Client, opts, dead)
		_, retryErr := redelivery.Subscribe(b.Client, opts, retry)
		_, wrapErr := redelivery.Wrap(plain, redelivery.WithClient(b.Client), dead)
		for _, err := range []error{err, retryErr, wrapErr} {
			require.ErrorIs(t, err, redelivery.ErrInvalidOption)
			require.ErrorContains(t, err, "topic is "+topic+", want topic, tenant/namespace/topic or")
		}
	}
	for _, topic := range []string{"x", "public/default/x", "persistent://prop/cluster/ns/x"} {
		b.Subscribe(opts, redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 2, Topic: topic}))
	}
}

// A consumer must not publish to a topic that it reads, since the messages would come again without end.
func TestOwnTopicIsRefusedByEachOption(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	for want, option := range map[string]redelivery.Option{
		"the dead letter topic is " + topic:  redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 2, Topic: topic}),
		"the retry topic is " + topic:        redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 2, RetryTopic: topic}),
		"another one than the retry topic":   redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 2, RetryTopic: "x", Topic: "x"}),
		"WithAttemptLog's topic is " + topic: redelivery.WithAttemptLog(redelivery.AttemptLog{Topic: topic}),
	} {
		opts := b.Options(topic, pulsar.Shared)
		opts.RetryEnable = true
		_, err := redelivery.Subscribe(b.Client, opts, option)
		require.ErrorIs(t, err, redelivery.ErrInvalidOption)
		require.ErrorContains(t, err, want)
	}
}
