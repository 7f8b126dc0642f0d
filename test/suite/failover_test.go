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
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// publishSlowly publishes the payloads "0", "1" … until the test ends.
func publishSlowly(b *testkit.Broker, topic string) {
	p, err := b.Client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	require.NoError(b.T, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ctx.Err() == nil; n++ {
			_, _ = p.Send(ctx, &pulsar.ProducerMessage{Payload: []byte(strconv.Itoa(n))})
			time.Sleep(5 * time.Millisecond)
		}
	}()
	b.T.Cleanup(func() {
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
func receives(f *testkit.Fake, opts pulsar.ConsumerOptions, n int64) {
	cm := pulsar.ConsumerMessage{Consumer: f, Message: testkit.Message{MessageID: pulsar.NewMessageID(1, n, 0, 0)}}
	opts.Interceptors.BeforeConsume(cm)
	f.Queue <- cm
}

// A consumer of Failover joins, and is told that it is not the active one before Subscribe has returned. When the
// active one leaves, the broker sends it what is published meanwhile, and after the failover delay, when it tells, all
// that is not acknowledged. That comes first.
func TestFailoverTakeOverBeginsWithTheOldest(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(1) // of a partition the consumer with the first name is the active one
	join := func(name string) (pulsar.Consumer, func() int) {
		opts := b.Options(topic, pulsar.Failover)
		opts.Name = name
		c := b.Subscribe(opts)
		return c, func() int { return number(testkit.Receive(t, c)) }
	}
	a, next := join("a")
	publishSlowly(b, topic)
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
		inner := testkit.NewFake()
		var opts pulsar.ConsumerOptions
		c, err := redelivery.SubscribeWith(func(o pulsar.ConsumerOptions) (pulsar.Consumer, error) {
			inner.Prefetch(t, o.MessageChannel)
			opts = o
			o.EventListener.BecameInactive(inner, "", -1)
			o.EventListener.BecameInactive(inner, "other", -1)
			o.EventListener.BecameActive(inner, "other", -1)
			return inner, nil
		}, pulsar.ConsumerOptions{Type: pulsar.Failover})
		require.NoError(t, err)
		defer c.Close()
		inner.Deliver(7)
		testkit.ReceiveNothing(t, c, time.Second)
		opts.EventListener.BecameActive(inner, "", -1)
		receives(inner, opts, 1)
		require.Equal(t, int64(1), testkit.Receive(t, c).ID().EntryID())
	})
}

// What was received before a partition became this consumer's is taken afterwards: the broker sends it again, after
// older messages.
func TestReceivedBeforeItBecameActive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := testkit.NewFake()
		c, opts := testkit.SubscribeFakeWith(t, inner, pulsar.ConsumerOptions{Type: pulsar.Failover})
		for n := range int64(5) {
			receives(inner, opts, 10+n)
		}
		opts.EventListener.BecameInactive(inner, "", -1)
		opts.EventListener.BecameActive(inner, "", -1)
		for n := range int64(15) {
			receives(inner, opts, n)
		}
		for n := range int64(15) {
			msg := testkit.Receive(t, c)
			require.Equal(t, n, msg.ID().EntryID())
			require.NoError(t, c.Ack(msg))
		}
		require.Equal(t, uint64(5), c.Stats().Dropped)
		time.Sleep(time.Minute)
		require.Empty(t, inner.Requests())
	})
}
