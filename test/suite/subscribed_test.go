package suite

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
)

// While Observer.Subscribed runs the Consumer works already: what the inner consumer tells is heard.
func TestSubscribedUsesTheConsumer(t *testing.T) {
	t.Run("receive, acknowledge, close", func(t *testing.T) {
		b := newBroker(t)
		topic := b.topic(0)
		var w witness
		var ch <-chan pulsar.ConsumerMessage
		opts := b.options(topic, pulsar.Exclusive)
		opts.SubscriptionInitialPosition = pulsar.SubscriptionPositionEarliest
		opts.Interceptors = pulsar.ConsumerInterceptors{&w}
		c := b.subscribe(opts, redelivery.WithObserver(redelivery.Observer{Subscribed: func(c *redelivery.Consumer) {
			b.send(topic, 1, false) // not before: interceptors would get pulsar-client-go's consumer
			assert.NoError(t, c.Ack(receive(t, c)))
			ch = c.Chan()
			c.Close()
		}}))
		consumers, _, acked, closed := w.seen()
		assert.Equal(t, []pulsar.Consumer{c}, consumers)
		assert.Equal(t, []int{1, 1}, []int{acked, closed})
		assert.Equal(t, c.Chan(), ch)
	})
	t.Run("a topic that gives up", func(t *testing.T) {
		inner := newFake()
		var opts pulsar.ConsumerOptions
		c, err := redelivery.SubscribeWith(func(prepared pulsar.ConsumerOptions) (pulsar.Consumer, error) {
			opts = prepared
			inner.prefetch(t, opts.MessageChannel)
			return inner, nil
		}, pulsar.ConsumerOptions{Type: pulsar.Shared, Topics: []string{"a", "b"}},
			redelivery.WithObserver(redelivery.Observer{Subscribed: func(*redelivery.Consumer) {
				opts.Interceptors.OnConsumerClose(inner, errors.New("a gave up"))
			}}))
		require.NoError(t, err)
		defer c.Close()
		opts.Interceptors.OnConsumerClose(inner, errors.New("b gave up"))
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err = c.Receive(ctx)
		require.Error(t, err)
		require.NoError(t, ctx.Err(), "Receive ends with the last topic")
	})
}
