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
				x := intake.New(ended, c, messages, func() bool { return false }, func(time.Duration) {})
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
				x := intake.New(ended, inner, messages, func() bool { return true }, func(quiet time.Duration) {
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

func TestUndecryptableWithoutQueue(t *testing.T) {
	c := &consumer{ch: make(chan pulsar.ConsumerMessage, 1)}
	x := intake.New(context.Background(), c, nil, func() bool { return false }, func(time.Duration) {})
	defer x.Close()
	require.NoError(t, x.Acquire(context.Background()))
	c.ch <- pulsar.ConsumerMessage{}
	_, _, err := x.Take(context.Background())
	require.True(t, errors.Is(err, intake.ErrUndecryptable))
}
