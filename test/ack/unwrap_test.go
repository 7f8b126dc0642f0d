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
		again := unwrappable{asReceived{testkit.Receive(t, c)}} // the first delivery's ack timeout is over
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
