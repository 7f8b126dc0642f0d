package suite

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
)

// A message that is acknowledged several times, at once too, is reported once.
func TestAckedIsReportedOnce(t *testing.T) {
	t.Parallel()
	const n = 20
	b := newBroker(t)
	topic := b.topic(0)
	var acked atomic.Int32
	opts := b.options(topic, pulsar.Shared)
	opts.AckWithResponse = true
	c := b.subscribe(opts, redelivery.WithObserver(redelivery.Observer{Settled: func(redelivery.Settled) { acked.Add(1) }}))
	b.send(topic, 2*n, false)
	for range n {
		msg, done := receive(t, c), make(chan error)
		go func() { done <- c.Ack(msg) }()
		require.NoError(t, c.Ack(msg))
		require.NoError(t, <-done)
		id := receive(t, c).ID()
		require.NoError(t, c.AckIDList([]pulsar.MessageID{id, id, id}))
	}
	require.EqualValues(t, 2*n, acked.Load())
}

// What is not handed out again, but becomes a dead letter, does not count as redelivered.
func TestDeadLettersAreNotRedelivered(t *testing.T) {
	t.Parallel()
	each(t, map[string]pulsar.SubscriptionType{"Exclusive": pulsar.Exclusive, "Shared": pulsar.Shared}, func(t *testing.T, kind pulsar.SubscriptionType) {
		t.Parallel()
		const n = 50
		b := newBroker(t)
		topic := b.topic(0)
		c := b.subscribe(b.options(topic, kind), redelivery.WithNackRedeliveryDelay(0),
			redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 1}))
		b.send(topic, n, false)
		for range n {
			c.Nack(receive(t, c))
		}
		nothing(t, c, time.Second)
		b.settles(topic, 0)
		require.Zero(t, c.Stats().Redelivered)
	})
}

// asReceived is a message as an application may have it.
type asReceived struct{ pulsar.Message }

// A wrapper of an earlier delivery is told from the later one by what is in it.
func TestAStaleDeliveryInAWrapper(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic(0)
	c := b.subscribe(b.options(topic, pulsar.Exclusive), redelivery.WithAckTimeout(time.Second), redelivery.WithNackRedeliveryDelay(0),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 5}))
	b.send(topic, 1, false)
	first := asReceived{receive(t, c)}
	again := asReceived{receive(t, c)} // since the ack timeout of the first is over
	require.ErrorIs(t, c.InProgress(first), redelivery.ErrNotInFlight)
	require.NoError(t, c.InProgress(again))
	require.ErrorIs(t, c.DeadLetter(context.Background(), first, errors.New("late")), redelivery.ErrNotInFlight)
	c.Nack(first)
	_, err := receiveFor(c, ms(200))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, c.Ack(again))
	b.settles(topic, 0)
}

// The id of a whole batch, which an application may have made, acknowledges all of it, whatever became of its messages.
func TestAckOfAWholeBatch(t *testing.T) {
	t.Parallel()
	for name, ack := range map[string]func(*redelivery.Consumer, pulsar.MessageID) error{
		"AckID":           (*redelivery.Consumer).AckID,
		"AckIDCumulative": (*redelivery.Consumer).AckIDCumulative,
		"AckIDList": func(c *redelivery.Consumer, id pulsar.MessageID) error {
			return c.AckIDList([]pulsar.MessageID{id})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			topic := b.topic(0)
			c := b.subscribe(b.options(topic, pulsar.Exclusive), redelivery.WithNackRedeliveryDelay(time.Second))
			b.send(topic, 3, true)
			id := receive(t, c).ID()
			c.Nack(receive(t, c))
			receive(t, c)
			require.NoError(t, ack(c, pulsar.NewMessageID(id.LedgerID(), id.EntryID(), -1, id.PartitionIdx())))
			b.settles(topic, 0)
			nothing(t, c, 2*time.Second)
			require.Zero(t, c.Stats().Waiting)
		})
	}
}

// A consumer does not publish to the topic that it reads, where that would come again and never end.
func TestOwnTopicsAreRefused(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic(0)
	for want, option := range map[string]redelivery.Option{
		"the dead letter topic is " + topic:  redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 2, Topic: topic}),
		"another one than the retry topic":   redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 2, RetryTopic: "x", Topic: "x"}),
		"WithAttemptLog's topic is " + topic: redelivery.WithAttemptLog(redelivery.AttemptLog{Topic: topic}),
	} {
		opts := b.options(topic, pulsar.Shared)
		opts.RetryEnable = true
		_, err := redelivery.Subscribe(b.client, opts, option)
		require.ErrorIs(t, err, redelivery.ErrInvalidOption)
		require.ErrorContains(t, err, want)
	}
}

// A message waits in memory as the application has it.
func TestAMessageThatTheApplicationChanges(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic(0)
	c := b.subscribe(b.options(topic, pulsar.Shared), redelivery.WithNackRedeliveryDelay(0))
	b.publish(pulsar.ProducerOptions{Topic: topic}, &pulsar.ProducerMessage{Payload: []byte("good"), Properties: map[string]string{"a": "b"}})
	msg := receive(t, c)
	msg.Payload()[0], msg.Properties()["a"] = 'f', "c"
	c.Nack(msg)
	msg = receive(t, c)
	require.Equal(t, "food", string(msg.Payload()))
	require.Equal(t, map[string]string{"a": "c"}, msg.Properties())
	require.NoError(t, c.Ack(msg))
}
