package suite

import (
	"errors"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
)

// unwrappable is a message as an application may have it, with the method by which the Consumer finds its delivery.
type unwrappable struct{ asReceived }

func (m unwrappable) Unwrap() pulsar.Message { return m.Message }

func TestStaleDeliveryInAWrapperIsRefused(t *testing.T) {
	t.Parallel()
	each(t, kinds, func(t *testing.T, kind pulsar.SubscriptionType) {
		t.Parallel()
		b := newBroker(t)
		topic := b.topic(0)
		c := b.subscribe(b.options(topic, kind), redelivery.WithAckTimeout(time.Second), redelivery.WithNackRedeliveryDelay(0),
			redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 5}))
		b.send(topic, 1, false)
		first := unwrappable{asReceived{receive(t, c)}}
		again := unwrappable{asReceived{receive(t, c)}} // since the ack timeout of the first is over
		require.NoError(t, c.InProgress(again))
		require.ErrorIs(t, c.InProgress(first), redelivery.ErrNotInFlight)
		require.ErrorIs(t, c.DeadLetter(bg, first, errors.New("late")), redelivery.ErrNotInFlight)
		c.Nack(first)
		nothing(t, c, ms(200))
		require.EqualValues(t, 1, c.RedeliveryCount(again))
		require.NoError(t, c.Ack(again))
		b.settles(topic, 0)
	})
}
