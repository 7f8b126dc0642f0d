package receive

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// If the context is done, each method returns its error before it looks at the other arguments.
func TestDoneContextIsReturnedFirst(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	c := b.Subscribe(b.Options(b.NewTopic(0), pulsar.Shared))
	cause := errors.New("cause")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	_, err := c.Receive(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, c.ReconsumeLaterNext(ctx, nil), context.Canceled)
	require.ErrorIs(t, c.ReconsumeLaterLevel(ctx, nil, -1), context.Canceled)
	require.ErrorIs(t, c.ReconsumeLaterAfter(ctx, nil, 0, nil), context.Canceled)
	require.ErrorIs(t, c.DeadLetter(ctx, nil, nil), context.Canceled)
}

func TestReceiveReturnsWhenItsContextEnds(t *testing.T) {
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, _ *testkit.Fake, _ *bytes.Buffer) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		go func() { _, _ = c.Receive(context.Background()) }() // this Receive is the first
		synctest.Wait()
		_, err := c.Receive(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestReceiveWithDoneContextTakesNothing(t *testing.T) {
	t.Parallel()
	const n = 50
	for name, adjust := range map[string]func(*pulsar.ConsumerOptions){
		"plain":      func(*pulsar.ConsumerOptions) {},
		"exclusive":  func(o *pulsar.ConsumerOptions) { o.Type = pulsar.Exclusive },
		"zero-queue": func(o *pulsar.ConsumerOptions) { o.EnableZeroQueueConsumer = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			b.Send(topic, n, false)
			opts := b.Options(topic, pulsar.Shared)
			adjust(&opts)
			c := b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(100*time.Millisecond))
			c.Nack(testkit.Receive(t, c))
			time.Sleep(500 * time.Millisecond) // until messages and a redelivery are ready
			canceled, cancel := context.WithCancel(context.Background())
			cancel()
			expired, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
			defer cancel()
			for range n {
				msg, err := c.Receive(canceled)
				require.ErrorIs(t, err, context.Canceled)
				require.Nil(t, msg)
				_, err = c.Receive(expired)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			j := testkit.NewJournal()
			for range n {
				msg := testkit.Receive(t, c)
				j.Taken(msg)
				require.NoError(t, c.Ack(msg))
				j.Done(msg)
			}
			testkit.ReceiveNothing(t, c, time.Second)
			j.Complete(t, n)
		})
	}
}

// The seeks bring messages back again and again.
func TestReceiveWithDoneContextDuringSeeksTakesNothing(t *testing.T) {
	t.Parallel()
	const n = 200
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	b.Send(topic, n, false)
	c := b.Subscribe(b.Options(topic, pulsar.Exclusive))
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	seeking, stop := context.WithTimeout(context.Background(), 3*time.Second)
	defer stop()
	var workers sync.WaitGroup
	var taken atomic.Int32
	for range 4 {
		workers.Go(func() {
			for seeking.Err() == nil {
				if _, err := c.Receive(canceled); err == nil {
					taken.Add(1)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	for seeking.Err() == nil {
		require.NoError(t, c.SeekByTime(time.Now().Add(-time.Hour)))
		time.Sleep(100 * time.Millisecond)
	}
	workers.Wait()
	require.Zero(t, taken.Load(), "messages were taken with a done context")
	j := testkit.NewJournal()
	j.Done(testkit.Receive(t, c)) // the message comes when the consumer has connected again after the last Seek
	testkit.Drain(t, c, time.Second, func(msg pulsar.Message) { j.Done(msg) })
	j.Complete(t, n)
}

// The Seek does not wait for the Receive.
func TestReceiveDuringSeekReturnsWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := testkit.NewStandIn(t, pulsar.ConsumerOptions{})
		over := make(chan struct{})
		end := sync.OnceFunc(func() { close(over) })
		defer end()
		s.OnSeek = func() { <-over }
		received := make(chan error, 2)
		ctx, cancel := context.WithCancel(context.Background())
		receiving := func() { _, err := c.Receive(ctx); received <- err }
		go receiving()
		synctest.Wait()
		sought := make(chan error, 1)
		go func() { sought <- c.SeekByTime(time.Now()) }()
		synctest.Wait()
		go receiving()
		synctest.Wait()
		cancel()
		synctest.Wait()
		require.Len(t, received, 2, "Receive did not return when its context ended")
		require.ErrorIs(t, <-received, context.Canceled)
		require.ErrorIs(t, <-received, context.Canceled)
		end()
		require.NoError(t, <-sought)
	})
}
