package intake_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/intake"
)

// counted counts the calls of Receive that are under way, and those that were begun.
type counted struct {
	consumer
	now, all atomic.Int32
}

func (c *counted) Receive(ctx context.Context) (pulsar.Message, error) {
	c.now.Add(1)
	c.all.Add(1)
	defer c.now.Add(-1)
	return c.consumer.Receive(ctx)
}

// withoutQueue runs a test with a consumer that has no queue.
func withoutQueue(t *testing.T, test func(t *testing.T, c *counted, x *intake.Intake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &counted{consumer: consumer{ch: make(chan pulsar.ConsumerMessage)}}
		ended, end := context.WithCancel(context.Background())
		defer end()
		x := intake.New(ended, c, nil, 0, func() bool { return false }, func(time.Duration) {})
		defer x.Close()
		require.NoError(t, x.Acquire(ended))
		test(t, c, x)
	})
}

// takeFor waits for a message for a while.
func takeFor(x *intake.Intake, d time.Duration) (got bool) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	for ctx.Err() == nil && !got {
		_, event, err := x.Take(ctx)
		got = event == intake.Message && err == nil
	}
	return got
}

// However many wait for a short time or are woken, the broker is asked for one message, which the next gets who waits.
func TestOneMessageIsAskedForWithoutQueue(t *testing.T) {
	withoutQueue(t, func(t *testing.T, c *counted, x *intake.Intake) {
		for range 50 {
			require.False(t, takeFor(x, 10*time.Millisecond))
			x.Wake()
		}
		require.EqualValues(t, 1, c.all.Load())
		c.ch <- pulsar.ConsumerMessage{Message: message{}}
		synctest.Wait()
		require.Zero(t, c.now.Load(), "nobody waits, so the broker is asked for nothing")
		require.True(t, takeFor(x, time.Millisecond))
		require.EqualValues(t, 1, c.all.Load())
		for range 3 {
			require.False(t, takeFor(x, time.Hour+100*time.Millisecond))
		}
		require.EqualValues(t, 3, c.all.Load(), "it is asked again once, in case that it connected just then")
		require.EqualValues(t, 1, c.now.Load())
		x.Release()
		require.NoError(t, x.Interrupt())
		require.Zero(t, c.now.Load(), "something else is to be called")
	})
}

// Upstream may forget what it asked for when it connects.
func TestAskedAgainAfterAConnectionWithoutQueue(t *testing.T) {
	withoutQueue(t, func(t *testing.T, c *counted, x *intake.Intake) {
		takeFor(x, 59500*time.Millisecond) // not when it looks, once a second
		before := c.all.Load()
		x.Disconnected()
		takeFor(x, time.Minute)
		lost := c.all.Load()
		require.Greater(t, lost, before+50, "upstream cannot close itself while it receives")
		x.Connected()
		for range 3 {
			takeFor(x, 2*time.Second)
		}
		require.EqualValues(t, 1, c.all.Load()-lost)
	})
}

// What came by a connection that is lost comes again, to whichever consumer; what came while nobody waited is not lost.
func TestWhatWaitsWithoutQueue(t *testing.T) {
	for name, c := range map[string]struct {
		then func(x *intake.Intake)
		want bool
	}{
		"nothing":     {func(*intake.Intake) {}, true},
		"interrupted": {func(x *intake.Intake) { x.Release(); _ = x.Interrupt() }, true},
		"forgotten":   {func(x *intake.Intake) { x.Release(); _ = x.Interrupt(); x.Forget() }, false},
		"connection":  {func(x *intake.Intake) { x.Disconnected(); x.Connected() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			withoutQueue(t, func(t *testing.T, inner *counted, x *intake.Intake) {
				require.False(t, takeFor(x, time.Millisecond))
				inner.ch <- pulsar.ConsumerMessage{Message: message{}}
				synctest.Wait()
				c.then(x)
				require.Equal(t, c.want, takeFor(x, 10*time.Second))
				go func() { inner.ch <- pulsar.ConsumerMessage{Message: message{}} }()
				require.True(t, takeFor(x, 10*time.Second))
			})
		})
	}
}
