package subscribe

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// While Observer.Subscribed runs, the Consumer already handles events of the inner consumer.
func TestObserverSubscribedMayUseTheConsumer(t *testing.T) {
	t.Run("receive, acknowledge, close", func(t *testing.T) {
		b := testkit.NewBroker(t)
		topic := b.NewTopic(0)
		var w testkit.Witness
		var ch <-chan pulsar.ConsumerMessage
		opts := b.Options(topic, pulsar.Exclusive)
		opts.SubscriptionInitialPosition = pulsar.SubscriptionPositionEarliest
		opts.Interceptors = pulsar.ConsumerInterceptors{&w}
		c := b.Subscribe(opts, redelivery.WithObserver(redelivery.Observer{Subscribed: func(c *redelivery.Consumer) {
			b.Send(topic, 1, false) // for an earlier message, interceptors would get pulsar-client-go's consumer
			assert.NoError(t, c.Ack(testkit.Receive(t, c)))
			ch = c.Chan()
			c.Close()
		}}))
		consumers, _, acked, closed := w.Seen()
		assert.Equal(t, []pulsar.Consumer{c}, consumers)
		assert.Equal(t, []int{1, 1}, []int{acked, closed})
		assert.Equal(t, c.Chan(), ch)
	})
	t.Run("a topic that gives up", func(t *testing.T) {
		inner := testkit.NewFake()
		var opts pulsar.ConsumerOptions
		c, err := redelivery.SubscribeWith(func(prepared pulsar.ConsumerOptions) (pulsar.Consumer, error) {
			opts = prepared
			inner.Prefetch(t, opts.MessageChannel)
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
		require.NoError(t, ctx.Err(), "Receive did not end when the last topic gave up")
	})
}

func TestInnerConsumerThatClosesBeforeSubscribeReturns(t *testing.T) {
	inner := testkit.NewFake()
	var prepared pulsar.ConsumerOptions
	closes := make(chan func(), 1)
	closes <- func() { // other code closes the client while the Consumer logs a finding of the doctor
		prepared.Interceptors.OnConsumerClose(inner, nil)
		time.Sleep(20 * time.Millisecond)
	}
	c, err := redelivery.SubscribeWith(func(o pulsar.ConsumerOptions) (pulsar.Consumer, error) {
		prepared = o
		inner.Prefetch(t, o.MessageChannel)
		return inner, nil
	}, pulsar.ConsumerOptions{Topic: "non-persistent://public/default/t", SubscriptionName: "s", Type: pulsar.Shared},
		redelivery.WithLogger(slog.New(callsBack{slog.NewTextHandler(io.Discard, nil), "", closes})))
	require.NoError(t, err)
	require.Empty(t, closes)
	<-c.Done()
	<-inner.Closed
	c.Close()
}
