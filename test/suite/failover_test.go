package suite

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
)

// publishSlowly publishes the payloads "0", "1" … until the test ends.
func (b *broker) publishSlowly(topic string) {
	p, err := b.client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	require.NoError(b.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ctx.Err() == nil; n++ {
			_, _ = p.Send(ctx, &pulsar.ProducerMessage{Payload: []byte(strconv.Itoa(n))})
			time.Sleep(5 * time.Millisecond)
		}
	}()
	b.t.Cleanup(func() {
		cancel()
		<-done
		p.Close()
	})
}

// number is the payload of the next message.
func number(msg pulsar.Message) (n int) {
	_, _ = fmt.Sscan(string(msg.Payload()), &n)
	return n
}

// receives has entry n received, and delivers it.
func (f *fake) receives(opts pulsar.ConsumerOptions, n int64) {
	cm := pulsar.ConsumerMessage{Consumer: f, Message: message{id: pulsar.NewMessageID(1, n, 0, 0)}}
	opts.Interceptors.BeforeConsume(cm)
	f.queue <- cm
}

// A consumer of Failover joins, and is told that it is not the active one before Subscribe has returned. When the
// active one leaves, the broker sends it what is published meanwhile, and after the failover delay, when it tells, all
// that is not acknowledged. That comes first.
func TestFailoverTakeOverBeginsWithTheOldest(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic(1) // of a partition the consumer with the first name is the active one
	join := func(name string) (pulsar.Consumer, func() int) {
		opts := b.options(topic, pulsar.Failover)
		opts.Name = name
		c := b.subscribe(opts)
		return c, func() int { return number(receive(t, c)) }
	}
	a, next := join("a")
	b.publishSlowly(topic)
	for n := range 50 {
		require.Equal(t, n, next())
	}
	_, next = join("b")
	a.Close()
	for n := range 300 {
		require.Equal(t, n, next())
	}
}

// The same, with a consumer that is told during subscribe.
func TestToldToBeInactiveBeforeSubscribeReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFake()
		var opts pulsar.ConsumerOptions
		c, err := redelivery.SubscribeWith(func(o pulsar.ConsumerOptions) (pulsar.Consumer, error) {
			inner.prefetch(t, o.MessageChannel)
			opts = o
			o.EventListener.BecameInactive(inner, "", -1)
			o.EventListener.BecameInactive(inner, "other", -1)
			o.EventListener.BecameActive(inner, "other", -1)
			return inner, nil
		}, pulsar.ConsumerOptions{Type: pulsar.Failover})
		require.NoError(t, err)
		defer c.Close()
		inner.deliver(7)
		nothing(t, c, time.Second)
		opts.EventListener.BecameActive(inner, "", -1)
		inner.receives(opts, 1)
		require.Equal(t, int64(1), receive(t, c).ID().EntryID())
	})
}

// What was received before a partition became this consumer's is taken afterwards: the broker sends it again, after
// older messages.
func TestReceivedBeforeItBecameActive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFake()
		c, opts := subscribeFake(t, inner, pulsar.ConsumerOptions{Type: pulsar.Failover})
		for n := range int64(5) {
			inner.receives(opts, 10+n)
		}
		opts.EventListener.BecameInactive(inner, "", -1)
		opts.EventListener.BecameActive(inner, "", -1)
		for n := range int64(15) {
			inner.receives(opts, n)
		}
		for n := range int64(15) {
			msg := receive(t, c)
			require.Equal(t, n, msg.ID().EntryID())
			require.NoError(t, c.Ack(msg))
		}
		require.Equal(t, uint64(5), c.Stats().Dropped)
		time.Sleep(time.Minute)
		require.Empty(t, inner.requests())
	})
}
