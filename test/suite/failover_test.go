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

// A consumer of Failover joins, and is told that it is not the active one before Subscribe has returned. When the active one leaves, the broker sends
// it what is published meanwhile, and after the failover delay, when it tells, all that is not acknowledged. That comes first.
func TestFailoverTakeOverBeginsWithTheOldest(t *testing.T) {
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
		var told pulsar.ConsumerEventListener
		c, err := redelivery.SubscribeWith(func(o pulsar.ConsumerOptions) (pulsar.Consumer, error) {
			inner.prefetch(t, o.MessageChannel)
			told = o.EventListener
			told.BecameInactive(inner, "", -1)
			told.BecameInactive(inner, "other", -1)
			told.BecameActive(inner, "other", -1)
			return inner, nil
		}, pulsar.ConsumerOptions{Type: pulsar.Failover})
		require.NoError(t, err)
		defer c.Close()
		inner.deliver(7)
		nothing(t, c, time.Second)
		told.BecameActive(inner, "", -1)
		inner.deliver(1)
		require.Equal(t, int64(1), receive(t, c).ID().EntryID())
	})
}
