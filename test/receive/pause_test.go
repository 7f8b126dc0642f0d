package receive

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// The pause begins while the message is on its way.
func TestPauseKeepsMessageOnItsWayToTheChannel(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	opts := b.Options(topic, pulsar.Shared)
	opts.Interceptors = pulsar.ConsumerInterceptors{testkit.Callbacks{Before: func() { time.Sleep(2 * time.Millisecond) }}}
	c := b.Subscribe(opts)
	b.Send(topic, 200, false)
	for range 100 {
		require.NoError(t, c.Ack(waittest.Next(t, c.Chan())))
		c.Pause()
		select {
		case <-c.Chan():
			t.Fatal("a message comes while the Consumer is paused")
		case <-time.After(10 * time.Millisecond):
		}
		c.Resume()
	}
}

// The goroutine behind Chan begins to offer the message in the moment of the Pause.
func TestPauseInTheMomentOfAnOfferWithdrawsIt(t *testing.T) {
	t.Parallel()
	c, inner := testkit.SubscribeFake(t, pulsar.Shared)
	inner.Deliver(1)
	for i := range 5000 {
		c.Resume()
		for range i % 50 {
			runtime.Gosched()
		}
		c.Pause()
		select {
		case <-c.Chan():
			t.Fatal("a message comes while the Consumer is paused")
		case <-time.After(20 * time.Microsecond):
		}
	}
}

// Pause waits for the goroutine behind Chan, which calls the observer.
func TestPauseByObserverOfChanReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *redelivery.Consumer
		c, inner := testkit.SubscribeFake(t, pulsar.Shared, redelivery.WithObserver(redelivery.Observer{
			Delivered: func(redelivery.Delivered) { c.Pause() },
		}))
		inner.Deliver(1)
		inner.Deliver(2)
		<-c.Chan()
		synctest.Wait()
		select {
		case <-c.Chan():
			t.Fatal("a message comes while the Consumer is paused")
		case <-time.After(time.Hour):
		}
		c.Resume()
		<-c.Chan()
	})
}

func TestPauseThatIsResumedMeanwhileReturns(t *testing.T) {
	t.Parallel()
	c, inner := testkit.SubscribeFake(t, pulsar.Shared)
	inner.Deliver(1)
	c.Chan()
	var callers sync.WaitGroup
	for range 2 {
		callers.Go(func() {
			for range 50_000 {
				c.Pause()
				c.Resume()
			}
		})
	}
	callers.Wait()
	<-c.Chan()
}

// A paused Consumer delivers neither new nor due messages. No message is lost or delivered twice.
func TestPausedConsumerDeliversNothing(t *testing.T) {
	for name, take := range map[string]func(context.Context, *redelivery.Consumer) (pulsar.Message, error){
		"Receive": func(ctx context.Context, c *redelivery.Consumer) (pulsar.Message, error) { return c.Receive(ctx) },
		"Chan": func(ctx context.Context, c *redelivery.Consumer) (pulsar.Message, error) {
			select {
			case cm := <-c.Chan():
				return cm, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, inner := testkit.SubscribeFake(t, pulsar.Exclusive, redelivery.WithNackRedeliveryDelay(time.Second))
				inner.Deliver(1)
				msg, err := take(context.Background(), c)
				require.NoError(t, err)
				inner.Deliver(2) // Chan offers the message
				synctest.Wait()
				c.Pause()
				c.Pause()
				c.Nack(msg)
				ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
				_, err = take(ctx, c)
				require.ErrorIs(t, err, context.DeadlineExceeded, "a message came during the pause")
				cancel()
				got := make(chan pulsar.Message)
				go func() {
					for range 3 {
						if msg, err := take(context.Background(), c); err == nil {
							got <- msg
						}
					}
				}()
				time.Sleep(time.Hour)
				inner.Deliver(3)
				synctest.Wait()
				require.Empty(t, got)
				c.Resume()
				c.Resume()
				counts := map[int64]uint32{}
				for range 3 {
					msg := <-got
					counts[msg.ID().EntryID()] = msg.RedeliveryCount()
					require.NoError(t, c.Ack(msg))
				}
				require.Equal(t, map[int64]uint32{1: 1, 2: 0, 3: 0}, counts)
			})
		})
	}
}

// Chan offers the messages after the pause, since no other consumer has them.
func TestPauseOfNonPersistentTopicOffersNothing(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	opts := b.Options(fmt.Sprintf("non-persistent://public/default/t-%08x", rand.Uint32()), pulsar.Shared)
	c := b.Subscribe(opts)
	channel := c.Chan()
	b.AwaitPermits(opts.Topic)
	b.Send(opts.Topic, 2, false)
	time.Sleep(500 * time.Millisecond) // until Chan offers a message
	c.Pause()
	select {
	case <-channel:
		require.FailNow(t, "a message comes while the Consumer is paused")
	case <-time.After(200 * time.Millisecond):
	}
	c.Resume()
	for range 2 {
		select {
		case <-channel:
		case <-time.After(testkit.Patience):
			require.FailNow(t, "a message is gone")
		}
	}
	c.Pause()
	c.Close()
}

func TestCloseEndsTheOfferOfANonPersistentMessage(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	opts := b.Options(fmt.Sprintf("non-persistent://public/default/t-%08x", rand.Uint32()), pulsar.Shared)
	c := b.Subscribe(opts)
	c.Chan()
	b.AwaitPermits(opts.Topic)
	b.Send(opts.Topic, 1, false)
	time.Sleep(500 * time.Millisecond) // until Chan offers the message
	go c.Close()
	waittest.Next(t, c.Done())
	c.Close()
}

// A Receive that waits returns, and Done is closed.
func TestCloseOfPausedConsumerReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := testkit.SubscribeFake(t, pulsar.Shared)
		c.Pause()
		received := make(chan error)
		go func() { _, err := c.Receive(context.Background()); received <- err }()
		synctest.Wait()
		select {
		case <-c.Done():
			t.Fatal("Done is closed before Close")
		default:
		}
		go c.Close()
		<-c.Done()
		require.ErrorIs(t, <-received, testkit.ErrFakeClosed)
	})
}

func TestSeekOfPausedConsumerReconnects(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	c := b.Subscribe(b.Options(topic, pulsar.Exclusive))
	b.Send(topic, 2, false)
	first := testkit.Receive(t, c)
	testkit.Receive(t, c)
	go func() { _, _ = c.Receive(context.Background()) }()
	c.Pause()
	require.NoError(t, c.Seek(first.ID()))
	c.Resume()
	require.Eventually(t, func() bool { return c.Stats().Reconnecting == 0 }, 10*time.Second, 10*time.Millisecond,
		"the Consumer did not reconnect after the Seek")
}

func TestReconnectingStatCountsPartitions(t *testing.T) {
	t.Parallel()
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{ConnectionTimeout: time.Second})
	c := b.Subscribe(b.Options(b.NewTopic(2), pulsar.Shared))
	require.Zero(t, c.Stats().Reconnecting)
	b.InProcess.RefuseConnections(true)
	b.InProcess.DropConnections()
	require.Eventually(t, func() bool { return c.Stats().Reconnecting == 2 }, 10*time.Second, 10*time.Millisecond)
	b.InProcess.RefuseConnections(false)
	require.Eventually(t, func() bool { return c.Stats().Reconnecting == 0 }, 30*time.Second, 10*time.Millisecond)
}
