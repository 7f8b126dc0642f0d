package suite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
)

// While a Consumer is paused neither what is new nor what is due is handed out, and nothing is lost or taken twice.
func TestPause(t *testing.T) {
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
				c, inner := newPrepared(t, pulsar.Exclusive, redelivery.WithNackRedeliveryDelay(time.Second))
				inner.deliver(1)
				msg, err := take(context.Background(), c)
				require.NoError(t, err)
				inner.deliver(2) // on offer by now
				synctest.Wait()
				c.Pause()
				c.Pause()
				c.Nack(msg)
				ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
				_, err = take(ctx, c)
				require.ErrorIs(t, err, context.DeadlineExceeded, "nothing while it is paused")
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
				inner.deliver(3)
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

// Whoever waits in Receive returns when a paused Consumer is closed, and Done tells.
// Of a non-persistent topic, too, nothing is on offer in a pause; afterwards it is, since nobody else has it.
func TestPauseOfANonPersistentTopic(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	opts := b.options(fmt.Sprintf("non-persistent://public/default/t-%08x", rand.Uint32()), pulsar.Shared)
	c := b.subscribe(opts)
	channel := c.Chan()
	require.Eventually(t, func() bool { return b.permits(opts.Topic) > 0 }, patience, ms(5)) // or the broker drops the messages
	b.send(opts.Topic, 2, false)
	time.Sleep(ms(500)) // it is on offer
	c.Pause()
	select {
	case <-channel:
		require.FailNow(t, "a message comes while the Consumer is paused")
	case <-time.After(ms(200)):
	}
	c.Resume()
	for range 2 {
		select {
		case <-channel:
		case <-time.After(patience):
			require.FailNow(t, "a message is gone")
		}
	}
	c.Pause()
	c.Close()
}

func TestPausedConsumerIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newPrepared(t, pulsar.Shared)
		c.Pause()
		received := make(chan error)
		go func() { _, err := c.Receive(context.Background()); received <- err }()
		synctest.Wait()
		select {
		case <-c.Done():
			t.Fatal("it is not closed")
		default:
		}
		go c.Close()
		<-c.Done()
		require.ErrorIs(t, <-received, errFakeClosed)
	})
}

// A Seek of a paused consumer returns, and what was before it does not come afterwards.
func TestSeekOfAPausedConsumer(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic(0)
	c := b.subscribe(b.options(topic, pulsar.Exclusive))
	b.send(topic, 2, false)
	first := receive(t, c)
	receive(t, c)
	go func() { _, _ = c.Receive(context.Background()) }()
	c.Pause()
	require.NoError(t, c.Seek(first.ID()))
	c.Resume()
	require.Eventually(t, func() bool { return c.Stats().Reconnecting == 0 }, 10*time.Second, ms(10), "a Seek ends the connection")
}

func TestReconnecting(t *testing.T) {
	t.Parallel()
	b := newInProcess(t, pulsar.ClientOptions{ConnectionTimeout: time.Second})
	c := b.subscribe(b.options(b.topic(2), pulsar.Shared))
	require.Zero(t, c.Stats().Reconnecting)
	b.inProcess.RefuseConnections(true)
	b.inProcess.DropConnections()
	require.Eventually(t, func() bool { return c.Stats().Reconnecting == 2 }, 10*time.Second, ms(10))
	b.inProcess.RefuseConnections(false)
	require.Eventually(t, func() bool { return c.Stats().Reconnecting == 0 }, 30*time.Second, ms(10))
}
