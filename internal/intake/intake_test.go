package intake_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/pulsar-redelivery/redelivery/internal/intake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// consumer receives what is sent on ch, and panics on nil.
type consumer struct {
	pulsar.Consumer
	ch chan pulsar.ConsumerMessage
}

func (c *consumer) Receive(ctx context.Context) (pulsar.Message, error) {
	select {
	case cm := <-c.ch:
		if cm.Message == nil {
			panic("cannot decrypt")
		}
		return cm.Message, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type message struct{ pulsar.Message }

// each runs a test with a consumer that has a queue, and with one that has none.
func each(t *testing.T, test func(t *testing.T, c *consumer, x *intake.Intake, end func())) {
	t.Helper()
	for name, queue := range map[string]bool{"queue": true, "no queue": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &consumer{ch: make(chan pulsar.ConsumerMessage)}
				var messages <-chan pulsar.ConsumerMessage
				if queue {
					messages = c.ch
				}
				ended, end := context.WithCancel(context.Background())
				defer end()
				x := intake.New(ended, c, messages, 10, func() bool { return false }, func(time.Duration) {})
				defer x.Close()
				test(t, c, x, end)
			})
		})
	}
}

func TestTakeEndsByWhatComesFirst(t *testing.T) {
	each(t, func(t *testing.T, c *consumer, x *intake.Intake, end func()) {
		ctx, cancel := context.WithCancel(context.Background())
		require.NoError(t, x.Acquire(ctx))
		after := func(do func()) { go func() { time.Sleep(time.Millisecond); do() }() }

		after(func() { c.ch <- pulsar.ConsumerMessage{Message: message{}} })
		cm, event, err := x.Take(ctx)
		require.NoError(t, err)
		require.Equal(t, intake.Message, event)
		require.Equal(t, message{}, cm.Message)

		after(x.Wake)
		_, event, err = x.Take(ctx)
		require.NoError(t, err)
		require.Equal(t, intake.Woken, event)

		after(cancel)
		_, _, err = x.Take(ctx)
		require.ErrorIs(t, err, context.Canceled)

		after(end)
		_, _, err = x.Take(context.Background())
		require.ErrorIs(t, err, intake.ErrClosed)
		x.Release()
	})
}

// Whoever interrupts gets the turn at once, and the receiver after that.
func TestInterrupt(t *testing.T) {
	each(t, func(t *testing.T, c *consumer, x *intake.Intake, _ func()) {
		ctx := context.Background()
		require.NoError(t, x.Acquire(ctx))
		has := make(chan struct{})
		go func() {
			require.NoError(t, x.Interrupt())
			close(has)
			time.Sleep(time.Second)
			x.Release()
		}()
		_, event, err := x.Take(ctx)
		require.NoError(t, err)
		require.Equal(t, intake.Interrupted, event)
		x.Release()
		<-has
		begin := time.Now()
		require.NoError(t, x.Acquire(ctx))
		require.Equal(t, time.Second, time.Since(begin))

		waits, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		require.ErrorIs(t, x.Acquire(waits), context.DeadlineExceeded)
		x.Release()
	})
}

// Idle is called when somebody waited for a second in all and nothing came, and nobody who waits notices.
func TestIdle(t *testing.T) {
	for name, c := range map[string]struct {
		queue bool
		waits time.Duration // for which each of those who wait do so
	}{
		"queue": {true, time.Hour}, "queue, short waits": {true, 7 * time.Millisecond},
		"no queue": {false, time.Hour}, "no queue, short waits": {false, 7 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := &consumer{ch: make(chan pulsar.ConsumerMessage)}
				var messages <-chan pulsar.ConsumerMessage
				if c.queue {
					messages = inner.ch
				}
				busy, idle := context.WithCancel(context.Background())
				ended, end := context.WithCancel(context.Background())
				defer end()
				x := intake.New(ended, inner, messages, 0, func() bool { return true }, func(quiet time.Duration) {
					if quiet >= time.Second {
						idle()
					}
				})
				defer x.Close()
				require.NoError(t, x.Acquire(context.Background()))
				begin := time.Now()
				for busy.Err() == nil {
					ctx, cancel := context.WithTimeout(busy, c.waits)
					_, event, _ := x.Take(ctx)
					cancel()
					require.Equal(t, intake.Woken, event)
				}
				require.GreaterOrEqual(t, time.Since(begin), time.Second)
				require.Less(t, time.Since(begin), 3*time.Second)
			})
		})
	}
}

// What is taken at once is handed out one by one, as it came, and before what came later. Forget lets go of it.
func TestAhead(t *testing.T) {
	c := &consumer{ch: make(chan pulsar.ConsumerMessage, 10)}
	x := intake.New(context.Background(), c, c.ch, 4, func() bool { return false }, func(time.Duration) {})
	defer x.Close()
	require.NoError(t, x.Acquire(context.Background()))
	require.False(t, x.IsReady())
	send := func(from, to int64) {
		for n := from; n < to; n++ {
			c.ch <- pulsar.ConsumerMessage{Message: numbered{id: pulsar.NewMessageID(1, n, 0, 0)}}
		}
	}
	take := func() int64 {
		cm, event, err := x.Take(context.Background())
		require.NoError(t, err)
		require.Equal(t, intake.Message, event)
		return cm.ID().EntryID()
	}
	send(0, 6)
	require.Zero(t, take())
	require.Len(t, c.ch, 2, "four are taken")
	send(6, 8)
	for n := int64(1); n < 8; n++ {
		require.True(t, x.IsReady())
		require.Equal(t, n, take())
	}
	require.False(t, x.IsReady())
	send(8, 11)
	require.EqualValues(t, 8, take())
	x.Forget()
	require.False(t, x.IsReady())
	send(11, 12)
	require.EqualValues(t, 11, take())
}

type numbered struct {
	pulsar.Message
	id pulsar.MessageID
}

func (m numbered) ID() pulsar.MessageID { return m.id }

func TestUndecryptableWithoutQueue(t *testing.T) {
	c := &consumer{ch: make(chan pulsar.ConsumerMessage, 1)}
	x := intake.New(context.Background(), c, nil, 0, func() bool { return false }, func(time.Duration) {})
	defer x.Close()
	require.NoError(t, x.Acquire(context.Background()))
	c.ch <- pulsar.ConsumerMessage{}
	_, _, err := x.Take(context.Background())
	require.True(t, errors.Is(err, intake.ErrUndecryptable))
}
