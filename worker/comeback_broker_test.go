package worker_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/worker"
)

func shortContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// A Consumer that gave its messages back is not subscribed. Its Seek subscribes again.
func TestSeekAfterGiveBackRedeliversAllMessages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.subscribe(pulsar.ConsumerOptions{Type: pulsar.Shared})
	s.publish(false, numbers(0, 10)...)
	for range 10 {
		msg, err := c.Receive(shortContext(t))
		require.NoError(t, err)
		require.NoError(t, c.Ack(msg))
	}
	require.NoError(t, c.GiveBack())
	sought := make(chan error, 1)
	go func() { sought <- c.SeekByTime(time.Now().Add(-time.Hour)) }()
	select {
	case err := <-sought:
		require.NoError(t, err)
	case <-time.After(10 * time.Second):
		require.Fail(t, "Seek hangs")
	}
	for range 10 {
		msg, err := c.Receive(shortContext(t))
		require.NoError(t, err)
		require.NoError(t, c.Ack(msg))
	}
}

// subscribing returns a Consumer that calls the function before whenever it is about to subscribe upstream. n counts
// these calls, from 1.
func (s *site) subscribing(before func(n int32), options ...redelivery.Option) *redelivery.Consumer {
	var calls atomic.Int32
	var running sync.RWMutex
	s.Cleanup(running.Lock) // before the client is closed
	c, err := redelivery.SubscribeWith(func(opts pulsar.ConsumerOptions) (pulsar.Consumer, error) {
		running.RLock()
		defer running.RUnlock()
		before(calls.Add(1))
		return s.client.Subscribe(opts)
	}, pulsar.ConsumerOptions{Topic: s.topic, SubscriptionName: "sub", Type: pulsar.Shared, SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest},
		append(options, redelivery.WithLogger(quiet))...)
	require.NoError(s, err)
	s.Cleanup(c.Close)
	return c
}

// While the broker does not answer a Consumer that subscribes again, contexts and Close end the calls that wait for the
// subscription. If the subscription succeeds late, the next call uses the new consumer. After Close the new consumer is
// closed.
func TestSlowSubscriptionBlocksNoCallBeyondItsContext(t *testing.T) {
	t.Parallel()
	s, answer := newSite(t), make(chan struct{})
	c := s.subscribing(func(n int32) {
		if n > 1 {
			<-answer
		}
	})
	s.publish(false, "a")
	require.NoError(t, c.GiveBack())
	for range 2 {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		began := time.Now()
		_, err := c.Receive(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(began), 5*time.Second)
	}
	answer <- struct{}{}
	msg, err := c.Receive(shortContext(t))
	require.NoError(t, err)
	require.Equal(t, "a", string(msg.Payload()))

	require.NoError(t, c.GiveBack())
	received := make(chan error, 1)
	go func() { _, err := c.Receive(shortContext(t)); received <- err }()
	time.Sleep(50 * time.Millisecond)
	began := time.Now()
	c.Close()
	require.Less(t, time.Since(began), 5*time.Second)
	require.Error(t, waittest.Next(t, received))
	close(answer)
	d := s.subscribe(pulsar.ConsumerOptions{Type: pulsar.Shared})
	msg, err = d.Receive(shortContext(t))
	require.NoError(t, err)
	require.NoError(t, d.Ack(msg))
}

func TestGiveBackReturnsTheMessagesOfALateSubscription(t *testing.T) {
	t.Parallel()
	s, answer := newSite(t), make(chan struct{})
	c := s.subscribing(func(n int32) {
		if n == 2 {
			<-answer
		}
	})
	s.publish(false, "a")
	require.NoError(t, c.GiveBack())
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := c.Receive(ctx)
	require.Error(t, err)
	close(answer)
	time.Sleep(200 * time.Millisecond)
	require.NoError(t, c.GiveBack())
	msg, err := s.subscribe(pulsar.ConsumerOptions{Type: pulsar.Shared}).Receive(shortContext(t))
	require.NoError(t, err)
	require.Equal(t, "a", string(msg.Payload()))
}

// A message that was offered on the channel when the Consumer gave its messages back goes to another consumer.
func TestGiveBackWithdrawsTheOfferedMessage(t *testing.T) {
	t.Parallel()
	s, over := newSite(t), make(chan struct{})
	c := s.subscribing(func(n int32) {
		if n == 2 {
			<-over
		}
	})
	defer close(over)
	s.publish(false, "a")
	ch := c.Chan()
	time.Sleep(100 * time.Millisecond)
	other := s.subscribe(pulsar.ConsumerOptions{Type: pulsar.Shared})
	require.NoError(t, c.GiveBack())
	msg, err := other.Receive(shortContext(t))
	require.NoError(t, err)
	require.Equal(t, "a", string(msg.Payload()))
	select {
	case cm := <-ch:
		require.Fail(t, "handed out twice", "%v", cm.ID())
	case <-time.After(time.Second):
	}
	require.NoError(t, other.Ack(msg))
}

// An acknowledgement that waits for the broker's answer returns even if GiveBack closes the inner consumer at that
// moment. Upstream's call would wait forever.
func TestAcksThatWaitForTheBrokerReturnWhenGiveBackCloses(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.subscribe(pulsar.ConsumerOptions{Type: pulsar.Shared, AckWithResponse: true})
	s.publish(false, numbers(0, 2000)...)
	for range 20 {
		var msgs []pulsar.Message
		for range 40 {
			msg, err := c.Receive(shortContext(t))
			require.NoError(t, err)
			msgs = append(msgs, msg)
		}
		var acks sync.WaitGroup
		for i, msg := range msgs {
			acks.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Microsecond) // some before the GiveBack, some during it
				_ = c.Ack(msg)
			})
		}
		require.NoError(t, c.GiveBack())
		returned := make(chan struct{})
		go func() {
			acks.Wait()
			close(returned)
		}()
		select {
		case <-returned:
		case <-time.After(20 * time.Second):
			require.Fail(t, "an acknowledgement does not return")
		}
	}
}

func TestDelayAndCountOutliveGiveBackWithTheLogOfAttempts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	subscribe := func(name string) *redelivery.Consumer {
		return s.subscribe(pulsar.ConsumerOptions{Type: pulsar.Shared, Name: name}, redelivery.WithClient(s.client),
			redelivery.WithAttemptLog(redelivery.AttemptLog{}), redelivery.WithNackRedeliveryDelay(2*time.Second))
	}
	c := subscribe("c")
	s.publish(false, numbers(0, 200)...)
	nacked := map[string]time.Time{}
	receive := func() pulsar.Message {
		msg, err := c.Receive(shortContext(t))
		require.NoError(t, err)
		return msg
	}
	first := receive()
	other := subscribe("other")
	for range 100 {
		msg := receive()
		nacked[string(msg.Payload())] = time.Now()
		c.Nack(msg)
	}
	require.NoError(t, c.GiveBack())
	for len(nacked) > 0 {
		msg, err := other.Receive(shortContext(t))
		require.NoError(t, err)
		if at, ok := nacked[string(msg.Payload())]; ok {
			require.GreaterOrEqual(t, time.Since(at), 2*time.Second)
			require.EqualValues(t, 1, msg.RedeliveryCount())
			delete(nacked, string(msg.Payload()))
		}
		require.NoError(t, other.Ack(msg))
	}
	require.NotNil(t, first)
}

func TestCloseEndsSeekAndGiveBackThatWaitForASubscription(t *testing.T) {
	t.Parallel()
	s, answer := newSite(t), make(chan struct{})
	defer close(answer)
	for name, call := range map[string]func(*redelivery.Consumer) error{
		"seek": func(c *redelivery.Consumer) error { return c.SeekByTime(time.Now().Add(-time.Hour)) }, "give back": (*redelivery.Consumer).GiveBack,
	} {
		c := s.subscribing(func(n int32) {
			if n > 1 {
				<-answer
			}
		})
		require.NoError(t, c.GiveBack())
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		_, err := c.Receive(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		called := make(chan error, 1)
		go func() { called <- call(c) }()
		time.Sleep(100 * time.Millisecond)
		c.Close()
		require.ErrorIs(t, waittest.Next(t, called), redelivery.ErrClosed, name)
	}
}

func TestReceiveReturnsItsContextsErrorIfSubscribingFailsThen(t *testing.T) {
	t.Parallel()
	s, refused := newSite(t), errors.New("refused")
	for range 10 {
		n := 0
		c, err := redelivery.SubscribeWith(func(opts pulsar.ConsumerOptions) (pulsar.Consumer, error) {
			n++
			if n > 1 {
				time.Sleep(30 * time.Millisecond)
				return nil, refused
			}
			return s.client.Subscribe(opts)
		}, pulsar.ConsumerOptions{Topic: s.topic, SubscriptionName: "sub", Type: pulsar.Shared}, redelivery.WithLogger(quiet))
		require.NoError(t, err)
		require.NoError(t, c.GiveBack())
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		_, err = c.Receive(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		c.Close()
	}
}

// The Worker does not handle prefetched messages after its client is closed, since it could not acknowledge them.
func TestRunEndsWhenTheClientIsClosed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish(false, numbers(0, 50)...)
	c := s.subscribe(pulsar.ConsumerOptions{Type: pulsar.Shared})
	handled := 0
	w, err := worker.New(c, func(context.Context, pulsar.Message) error {
		handled++
		if handled == 5 {
			s.client.Close()
		}
		return nil
	}, worker.WithConcurrency(1), worker.WithLogger(quiet))
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(t.Context()) }()
	select {
	case err := <-ended:
		require.Error(t, err)
	case <-time.After(10 * time.Second):
		require.Fail(t, "the Worker goes on")
	}
	require.Equal(t, 5, handled)
}
