package ack

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// asReceived is an application's wrapper of a message.
type asReceived struct{ pulsar.Message }

// unwrappable is a wrapper with the method Unwrap, by which the Consumer finds the delivery.
type unwrappable struct{ asReceived }

func (m unwrappable) Unwrap() pulsar.Message { return m.Message }

// renamed is a wrapper that returns another topic than its message.
type renamed struct{ asReceived }

func (renamed) Topic() string { return "persistent://public/default/another" }

type unwrappableRenamed struct{ renamed }

func (m unwrappableRenamed) Unwrap() pulsar.Message { return m.Message }

// onlyID is a wrapper of which only ID works.
type onlyID struct {
	pulsar.Message
	id pulsar.MessageID
}

func (m onlyID) ID() pulsar.MessageID { return m.id }

func TestNackOfSettledMessageWithAnotherTopicLeavesItsLedger(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(pulsar.Message) pulsar.Message{
		"opaque":      func(msg pulsar.Message) pulsar.Message { return renamed{asReceived{msg}} },
		"unwrappable": func(msg pulsar.Message) pulsar.Message { return unwrappableRenamed{renamed{asReceived{msg}}} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			c := b.Subscribe(b.Options(topic, pulsar.Shared))
			b.Send(topic, 2, false)
			settled, other := testkit.Receive(t, c), testkit.Receive(t, c)
			require.NoError(t, c.Ack(settled))
			require.NoError(t, c.NackWithDelay(wrap(settled), time.Hour))
			require.NoError(t, c.AckID(other.ID()))
			b.Settles(topic, 0)
		})
	}
}

func TestDeliveryOfSettledMessageWithoutTopicReturns(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	c := b.Subscribe(b.Options(topic, pulsar.Shared))
	b.Send(topic, 1, false)
	msg := testkit.Receive(t, c)
	require.NoError(t, c.Ack(msg))
	d, err := c.Delivery(onlyID{id: msg.ID()})
	require.NoError(t, err)
	require.True(t, d.Settled)
	require.Zero(t, c.Stats().Waiting) // does not hang
}

func TestStaleWrappedDeliveryIsRefused(t *testing.T) {
	t.Parallel()
	testkit.Each(t, testkit.SubscriptionTypes, func(t *testing.T, kind pulsar.SubscriptionType) {
		b := testkit.NewBroker(t)
		topic := b.NewTopic(0)
		c := b.Subscribe(b.Options(topic, kind), redelivery.WithAckTimeout(time.Second),
			redelivery.WithNackRedeliveryDelay(0),
			redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 5}))
		b.Send(topic, 1, false)
		first := unwrappable{asReceived{testkit.Receive(t, c)}}
		again := unwrappable{asReceived{testkit.Receive(t, c)}} // delivered again after its ack timeout
		require.NoError(t, c.InProgress(again))
		require.ErrorIs(t, c.InProgress(first), redelivery.ErrNotInFlight)
		require.ErrorIs(t, c.DeadLetter(context.Background(), first, errors.New("late")), redelivery.ErrNotInFlight)
		c.Nack(first)
		testkit.ReceiveNothing(t, c, 200*time.Millisecond)
		require.EqualValues(t, 1, c.RedeliveryCount(again))
		require.NoError(t, c.Ack(again))
		b.Settles(topic, 0)
	})
}
