package retry

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

// A handler fails after the ack timeout, while another handler has the message. If the first one published the message
// and the second one acknowledged it, the message would come again after Ack had returned nil. A message that waits may
// be published.
func TestReconsumeOfStaleDeliveryIsRefused(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*redelivery.Consumer, pulsar.Message) error{
		"ReconsumeLaterAfter": func(c *redelivery.Consumer, m pulsar.Message) error {
			return c.ReconsumeLaterAfter(context.Background(), m, 0, nil)
		},
		"ReconsumeLaterNext": func(c *redelivery.Consumer, m pulsar.Message) error {
			return c.ReconsumeLaterNext(context.Background(), m)
		},
		"DeadLetter": func(c *redelivery.Consumer, m pulsar.Message) error {
			return c.DeadLetter(context.Background(), m, errors.New("late"))
		},
	} {
		testkit.Each(t, map[string]bool{name: false, name + " by Chan": true}, func(t *testing.T, channel bool) {
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			c := b.Subscribe(b.RetryOptions(topic, 100), redelivery.WithAckTimeout(300*time.Millisecond))
			next := func() pulsar.Message {
				if channel {
					return <-c.Chan()
				}
				return testkit.Receive(t, c)
			}
			b.Send(topic, 1, false)
			first, again := next(), next()
			require.ErrorIs(t, leave(c, first), redelivery.ErrNotInFlight)
			c.Nack(again)
			require.NoError(t, leave(c, again), "the waiting message was not published")
			b.Settles(topic, 0)
		})
	}
}
