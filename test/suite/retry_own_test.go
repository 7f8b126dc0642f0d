package suite

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

// Who names the consumer's own topic for its retries or dead letters is told, in whatever form the name is: they would
// come again and never end.
func TestOwnTopicForRetriesOrDeadLetters(t *testing.T) {
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

		r, err := reconsume.New(b.Client, reconsume.Options{Topic: "orders", Subscription: testkit.Subscription, DeadLetterTopic: name})
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
		require.ErrorContains(t, err, "the dead letter topic is "+name)
		plain.Close()
	}
}

// A Reconsumer may have its retries published where the consumer reads them.
func TestReconsumerWithRetriesThatTheConsumerReads(t *testing.T) {
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
	r, err := reconsume.New(b.Client, reconsume.Options{Topic: "orders", Subscription: testkit.Subscription})
	require.NoError(t, err)
	defer r.Close()
	opts := b.Options("", pulsar.Shared)
	opts.Topics = []string{"orders", r.RetryTopic()}
	b.Subscribe(opts, redelivery.WithReconsumer(r))
}

// Wrap does not know what its consumer reads. With a Reconsumer whose dead letters would come there again, none is
// published, and that is told.
func TestWrapWithAReconsumerOfItsOwnTopic(t *testing.T) {
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
	for _, name := range []string{"bills", "persistent://public/default/bills", "bills-partition-0"} {
		r, err := reconsume.New(b.Client, reconsume.Options{Topic: "orders", Subscription: testkit.Subscription, DeadLetterTopic: name})
		require.NoError(t, err)
		plain, err := b.Client.Subscribe(b.Options("bills", pulsar.Shared))
		require.NoError(t, err)
		c, err := redelivery.Wrap(plain, redelivery.WithReconsumer(r), testkit.LogTo(t.Output()))
		require.NoError(t, err)
		b.Publish(pulsar.ProducerOptions{Topic: "bills"}, &pulsar.ProducerMessage{Payload: []byte(name)})
		msg, err := c.Receive(t.Context())
		require.NoError(t, err)
		require.ErrorContains(t, c.DeadLetter(t.Context(), msg, errors.New("no luck")), "the dead letter topic is "+topicname.Full(name))
		require.NoError(t, c.Ack(msg))
		c.Close()
		r.Close()
	}
}
