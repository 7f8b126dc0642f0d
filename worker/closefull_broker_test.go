package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// A Consumer is closed after the broker has sent more messages than fit its queue. Upstream's reader waits for room in
// the queue, and does not read the broker's answer to Close, which comes after these messages. Close returns in time
// nevertheless, and the connection still works for other calls.
func TestCloseOfAConsumerWithAFullQueueReturns(t *testing.T) {
	t.Parallel()
	for range 5 {
		s := newSite(t, pulsartest.WithBatchIndexAcknowledgment())
		s.partitions(3)
		c := s.subscribe(pulsar.ConsumerOptions{Type: pulsar.Shared, ReceiverQueueSize: 1, EnableBatchIndexAcknowledgment: true},
			redelivery.WithNackRedeliveryDelay(0), redelivery.WithRedeliveryFrom(redelivery.FromBroker))
		for range 8 {
			s.publish(true, numbers(0, 7)...)
		}
		for i := range 60 {
			if msg, err := c.Receive(shortContext(t)); err == nil && i%3 == 0 {
				require.NoError(t, c.Ack(msg))
			} else if err == nil {
				c.Nack(msg)
			}
		}
		time.Sleep(300 * time.Millisecond)
		began := time.Now()
		c.Close()
		_, err := s.client.TopicPartitions(s.topic)
		require.NoError(t, err)
		require.Less(t, time.Since(began), 2*time.Second)
	}
}

// full is a consumer with more messages than fit its queue: Close returns when they are taken.
type full struct {
	pulsar.Consumer
	messages chan pulsar.ConsumerMessage
}

func (f full) Close() {
	for range cap(f.messages) + 10 {
		f.messages <- pulsar.ConsumerMessage{}
	}
	f.Consumer.Close()
}

func TestCloseTakesMessagesThatDoNotFitTheQueue(t *testing.T) {
	t.Parallel()
	for name, closes := range map[string]func(*redelivery.Consumer) error{
		"Close": func(c *redelivery.Consumer) error { c.Close(); return nil }, "GiveBack": (*redelivery.Consumer).GiveBack,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			c, err := redelivery.SubscribeWith(func(opts pulsar.ConsumerOptions) (pulsar.Consumer, error) {
				inner, err := s.client.Subscribe(opts)
				return full{inner, opts.MessageChannel}, err
			}, pulsar.ConsumerOptions{Topic: s.topic, SubscriptionName: "sub", Type: pulsar.Shared}, redelivery.WithLogger(quiet))
			require.NoError(t, err)
			closed := make(chan error, 1)
			go func() { closed <- closes(c) }()
			select {
			case err := <-closed:
				require.NoError(t, err)
				c.Close()
			case <-time.After(10 * time.Second):
				require.Fail(t, "the call hangs")
			}
		})
	}
}

// A Consumer subscribes again after GiveBack, and Close is called before the subscription succeeds. Then the new
// consumer is closed, too.
func TestConsumerThatIsSubscribedTooLateIsClosed(t *testing.T) {
	t.Parallel()
	s, calls, closing, closed := newSite(t), 0, make(chan struct{}), make(chan struct{})
	c, err := redelivery.SubscribeWith(func(opts pulsar.ConsumerOptions) (pulsar.Consumer, error) {
		calls++
		if calls == 1 {
			return s.client.Subscribe(opts)
		}
		<-closing
		inner, err := s.client.Subscribe(opts)
		return closeNoted{full{inner, opts.MessageChannel}, closed}, err
	}, pulsar.ConsumerOptions{Topic: s.topic, SubscriptionName: "sub", Type: pulsar.Shared}, redelivery.WithLogger(quiet))
	require.NoError(t, err)
	require.NoError(t, c.GiveBack())
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err = c.Receive(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	c.Close()
	close(closing)
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		require.Fail(t, "the new consumer is not closed")
	}
}

// closeNoted is a consumer that closes a channel at its Close.
type closeNoted struct {
	full
	closed chan struct{}
}

func (t closeNoted) Close() {
	t.full.Close()
	close(t.closed)
}

// late is a consumer that delivers one more message after it is closed, as a consumer of upstream may.
type late struct {
	pulsar.Consumer
	messages chan pulsar.ConsumerMessage
	last     *pulsar.Message
}

func (l late) Close() {
	l.Consumer.Close()
	if msg := *l.last; msg != nil {
		time.AfterFunc(10*time.Millisecond, func() { l.messages <- pulsar.ConsumerMessage{Consumer: l.Consumer, Message: msg} })
	}
}

// GiveBack closes the inner consumer. A message that comes from it later could not be acknowledged.
func TestMessageAfterGiveBackIsNotHandedOut(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.partitions(2) // with one topic, the Consumer knows that the message came over a lost connection
	var last pulsar.Message
	c, err := redelivery.SubscribeWith(func(opts pulsar.ConsumerOptions) (pulsar.Consumer, error) {
		inner, err := s.client.Subscribe(opts)
		return late{inner, opts.MessageChannel, &last}, err
	}, pulsar.ConsumerOptions{Topic: s.topic, SubscriptionName: "sub", Type: pulsar.Shared, AckWithResponse: true}, redelivery.WithLogger(quiet))
	require.NoError(t, err)
	defer c.Close()
	s.publish(false, "a")
	msg, err := c.Receive(shortContext(t))
	require.NoError(t, err)
	last = msg
	require.NoError(t, c.GiveBack())
	last = nil
	time.Sleep(100 * time.Millisecond)
	msg, err = c.Receive(shortContext(t))
	require.NoError(t, err)
	require.NoError(t, c.Ack(msg))
}
