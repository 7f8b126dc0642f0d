package suite

import (
	"bytes"
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// What upstream's own tests found to differ from client.Subscribe; see test/upstream.

func TestAckIDListAfterCloseTellsOfEachMessage(t *testing.T) {
	c, inner := newPrepared(t, pulsar.Shared)
	inner.deliver(1)
	inner.deliver(2)
	ids := []pulsar.MessageID{receive(t, c).ID(), receive(t, c).ID()}
	c.Close()
	require.IsType(t, pulsar.AckError{}, c.AckIDList(ids))
	var failed pulsar.AckError
	require.ErrorAs(t, c.AckIDList(ids), &failed)
	require.Len(t, failed, len(ids))
	for _, id := range ids {
		require.ErrorIs(t, failed[id], redelivery.ErrClosed)
		require.EqualError(t, failed[id], "consumer state is closed")
	}
	require.ErrorIs(t, c.AckIDList(nil), redelivery.ErrClosed)
}

func TestNonPersistentTopicsPassThrough(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := "non-" + b.topic(0)
	var log bytes.Buffer
	opts := b.options(topic, pulsar.Shared)
	opts.NackRedeliveryDelay = ms(10)
	c := b.subscribe(opts, logTo(&log), redelivery.WithAckTimeout(ms(100)))
	require.Contains(t, log.String(), topic)
	b.send(topic, 3, false)
	c.Nack(receive(t, c))
	require.NoError(t, c.NackWithDelay(receive(t, c), 0))
	require.NoError(t, c.Ack(receive(t, c)))
	nothing(t, c, ms(500))
	require.Zero(t, c.Stats().Waiting)
	require.Zero(t, c.Stats().Failed)
	b.send(topic, 1, false)
	require.NoError(t, c.Ack(receive(t, c)))
	opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 3}
	_, err := redelivery.Subscribe(b.client, opts)
	require.ErrorIs(t, err, redelivery.ErrInvalidOption)
}

func TestUpstreamRefusesZeroQueueWithRetries(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	opts := b.options(b.topic(0), pulsar.Shared)
	opts.EnableZeroQueueConsumer, opts.RetryEnable = true, true
	_, want := b.client.Subscribe(opts)
	require.Error(t, want)
	for _, policy := range []*pulsar.DLQPolicy{nil, {MaxDeliveries: 3}} {
		opts.DLQ = policy
		_, err := redelivery.Subscribe(b.client, opts)
		require.EqualError(t, err, want.Error())
	}
	opts.RetryEnable = false
	_, err := redelivery.Subscribe(b.client, opts, redelivery.WithReconsumeBackoff(backoff.Fixed(time.Second)))
	require.ErrorIs(t, err, redelivery.ErrInvalidOption)
}

func TestChanHasNoBuffer(t *testing.T) {
	c, _ := newPrepared(t, pulsar.Shared)
	require.Zero(t, cap(c.Chan()))
}

// Upstream's panics.
func TestZeroQueueConsumerHasAChannel(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic(0)
	b.send(topic, 3, false)
	opts := b.options(topic, pulsar.Shared)
	opts.EnableZeroQueueConsumer = true
	c := b.subscribe(opts)
	for range 3 {
		select {
		case cm := <-c.Chan():
			require.NoError(t, cm.Ack(cm))
		case <-time.After(15 * time.Second):
			require.FailNow(t, "no message")
		}
	}
	b.settles(topic, 0)
}

// Of upstream's each Receive whose context ends leaves a permit at the broker, and so would whatever wakes one that
// waits.
func TestZeroQueueConsumerAsksForOneMessage(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic(0)
	opts := b.options(topic, pulsar.Shared)
	opts.EnableZeroQueueConsumer = true
	c := b.subscribe(opts)
	for range 100 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, err := c.Receive(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	b.send(topic, 50, false)
	time.Sleep(500 * time.Millisecond)
	require.LessOrEqual(t, b.stats(topic, 0).Unacked, 2)
	for range 50 {
		require.NoError(t, c.Ack(receive(t, c)))
	}
	b.settles(topic, 0)
}

func TestDecryptedMessagesAreNotPublishedAsPlainText(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	opts := b.options(b.topic(0), pulsar.Shared)
	opts.Decryption, opts.DLQ = reader().decryption(), &pulsar.DLQPolicy{MaxDeliveries: 3}
	_, err := redelivery.Subscribe(b.client, opts)
	require.ErrorIs(t, err, redelivery.ErrInvalidOption)
	opts.DLQ, opts.RetryEnable = nil, true
	_, err = redelivery.Subscribe(b.client, opts)
	require.ErrorIs(t, err, redelivery.ErrInvalidOption)
}

func TestADeadLetterThatCannotBePublishedIsTriedAgain(t *testing.T) {
	t.Parallel()
	b := newInProcess(t, pulsar.ClientOptions{})
	topic := b.topic(0)
	var log logtest.Buffer
	opts := b.options(topic, pulsar.Exclusive)
	opts.NackRedeliveryDelay, opts.DLQ = ms(100), &pulsar.DLQPolicy{MaxDeliveries: 1}
	c := b.subscribe(opts, logTo(&log))
	b.inProcess.Inject("PRODUCER", deadLetterTopic(topic), -1, pulsartest.Fail("TopicTerminatedError", "injected"))
	b.send(topic, 1, false)
	c.Nack(receive(t, c))
	require.Eventually(t, func() bool { return c.Stats().Failed > 0 }, 10*time.Second, ms(10))
	require.Contains(t, log.String(), "dead letter failed")
	require.Equal(t, 1, b.stats(topic, 0).Backlog)
	b.inProcess.Inject("PRODUCER", deadLetterTopic(topic), 0, pulsartest.Pass)
	dead := b.deadLetters(topic)
	go func() { _, _ = c.Receive(bg) }()
	require.Equal(t, "0", string(next(t, dead, 30*time.Second).Payload()))
	b.settles(topic, 0)
}

// A method that upstream adds to its Consumer is missing here until it is written: nothing promotes it from an embedded
// field, past the ledger. TestANewMethodOfUpstreamFailsToCompile of test/upstream tries it.
func TestTheConsumerEmbedsNothing(t *testing.T) {
	var _ pulsar.Consumer = (*redelivery.Consumer)(nil)
	consumer := reflect.TypeFor[redelivery.Consumer]()
	for i := range consumer.NumField() {
		require.False(t, consumer.Field(i).Anonymous, consumer.Field(i).Name)
	}
}
