package upstream_test

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/upstream"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

func newReader(t *testing.T, consumer pulsar.Consumer, ahead int) *upstream.Reader {
	return upstream.NewReader(t.Context(), consumer, ahead,
		func(err error) { t.Errorf("the consumer failed: %v", err) })
}

func TestReaderTakesAllAvailableMessagesTogether(t *testing.T) {
	for _, c := range []struct {
		name                 string
		ahead, there, remain int // remain: how many are in the channel after the first Next
	}{
		{"nothing is there", 10, 0, 0},
		{"one", 10, 1, 0},
		{"fewer than it may take", 10, 9, 0},
		{"as many as it may take", 10, 10, 0},
		{"more than it may take", 10, 15, 5},
		{"it may take one", 1, 3, 2},
		{"it may take none, which counts as one", 0, 3, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			consumer := withMessages(c.there)
			r := newReader(t, consumer, c.ahead)
			require.Equal(t, c.there > 0, r.Has())
			for want := range c.there {
				require.True(t, r.Has(), "message %d", want)
				require.Equal(t, want, entryOf(r.Next()))
				if want == 0 {
					require.Len(t, consumer.channel, c.remain)
				}
			}
			require.False(t, r.Has())
			require.Equal(t, -1, entryOf(r.Next()))
			consumer.channel <- numbered(99)
			require.Equal(t, 99, entryOf(r.Next()), "not the message that came later")
		})
	}
}

func TestReaderReturnsThePutMessageFirst(t *testing.T) {
	consumer := withMessages(1)
	r := newReader(t, consumer, 10)
	cm := <-r.Wait(false)
	consumer.channel <- numbered(1)
	r.Put(cm)
	require.True(t, r.Has())
	require.Equal(t, 0, entryOf(r.Next()))
	require.Equal(t, 1, entryOf(r.Next()))
	require.Equal(t, -1, entryOf(r.Next()))
}

func TestForgottenMessagesAreNotReturned(t *testing.T) {
	consumer := withMessages(3)
	r := newReader(t, consumer, 10)
	require.Equal(t, 0, entryOf(r.Next()))
	r.Forget()
	require.False(t, r.Has())
	require.Equal(t, -1, entryOf(r.Next()))
	consumer.channel <- numbered(3)
	require.Equal(t, 3, entryOf(r.Next()), "not the message that came later")
}

func TestReaderOfAClosedChannelReturnsItsMessages(t *testing.T) {
	consumer := withMessages(2)
	close(consumer.channel)
	r := newReader(t, consumer, 10)
	require.Equal(t, 0, entryOf(r.Next()))
	require.Equal(t, 1, entryOf(r.Next()))
	for range 3 {
		require.False(t, r.Has())
		require.Equal(t, -1, entryOf(r.Next()))
	}
}

// A Reader that kept returned messages would hold as many in memory as it takes together.
func TestReaderKeepsNoMessageThatItReturned(t *testing.T) {
	r := newReader(t, withMessages(10), 10)
	kept := func() weak.Pointer[message] { // a function of its own, so that no variable keeps the message
		cm, _ := r.Next()
		return weak.Make(cm.Message.(*message))
	}()
	runtime.GC()
	require.Nil(t, kept.Value())
	require.Equal(t, 1, entryOf(r.Next()))
}

func TestReaderHasAQueueUnlessItsConsumerHasNone(t *testing.T) {
	client := pulsartest.NewServer(t).Client(t)
	for _, zero := range []bool{false, true} {
		consumer, err := client.Subscribe(pulsar.ConsumerOptions{Topic: "t", SubscriptionName: "s", Type: pulsar.Shared,
			EnableZeroQueueConsumer: zero})
		require.NoError(t, err)
		defer consumer.Close()
		require.Equal(t, zero, upstream.Chan(consumer) == nil)
		require.Equal(t, !zero, newReader(t, consumer, 10).HasQueue())
	}
}

// The stub's Close returns only when the queue is empty. Close of pulsar-client-go does the same while its reader of
// the connection waits for room.
func TestCloseWithAFullQueueReturns(t *testing.T) {
	for _, c := range []struct {
		name   string
		closes bool // the channel is closed by the consumer
	}{
		{"of pulsar-client-go", false},
		{"of another consumer, which closes its channel", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			consumer := &stub{channel: make(chan pulsar.ConsumerMessage)}
			consumer.close = func() {
				for entry := range 100 {
					select {
					case consumer.channel <- numbered(entry):
					case <-waittest.Context(t).Done():
						t.Errorf("message %d was not taken", entry)
						return
					}
				}
				if c.closes {
					close(consumer.channel)
				}
			}
			upstream.Close(consumer)
		})
	}
}

func TestCloseOfAConsumerWithoutAQueueReturns(t *testing.T) {
	closed := 0
	upstream.Close(&stub{close: func() { closed++ }})
	require.Equal(t, 1, closed)
}

// The broker's messages fill every queue, from the private channel to the connection.
func TestCloseWithFullQueuesOfABrokerReturns(t *testing.T) {
	broker := pulsartest.NewServer(t)
	publish(t, broker, "t", 100)
	consumer, err := broker.Client(t).Subscribe(pulsar.ConsumerOptions{Topic: "t", SubscriptionName: "s",
		Type:              pulsar.Shared,
		ReceiverQueueSize: 5, MessageChannel: make(chan pulsar.ConsumerMessage),
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
	require.NoError(t, err)
	waittest.Next(t, consumer.Chan())
	closed := make(chan struct{})
	go func() { defer close(closed); upstream.Close(consumer) }()
	waittest.Next(t, closed)
}

func TestIsClosedIsTrueOnceTheConsumerIsClosed(t *testing.T) {
	broker := pulsartest.NewServer(t)
	consumer := subscribe(t, broker.Client(t), newHooks(), pulsar.ConsumerOptions{Topic: "t"},
		upstream.Plan{Channel: 1})
	msg, closed := upstream.IsClosed(consumer)
	require.Nil(t, msg)
	require.False(t, closed)

	publish(t, broker, "t", 1)
	r := newReader(t, consumer, 1)
	r.Put(waittest.Next(t, r.Wait(false)))
	publish(t, broker, "t", 1)
	for msg == nil { // IsClosed does not always take the message
		msg, closed = upstream.IsClosed(consumer)
		require.False(t, closed)
	}
	require.Equal(t, "message 0", string(msg.Payload()))

	consumer.Close()
	require.Eventually(t, func() bool { // IsClosed does not always report the end at once
		msg, closed := upstream.IsClosed(consumer)
		return msg == nil && closed
	}, waittest.Limit, time.Millisecond)
}
