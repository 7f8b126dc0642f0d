package intake_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
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

// Whoever borrows the turn gets it at once, and the receiver after that.
func TestBorrow(t *testing.T) {
	each(t, func(t *testing.T, c *consumer, x *intake.Intake, _ func()) {
		ctx := context.Background()
		require.NoError(t, x.Acquire(ctx))
		lent := make(chan struct{})
		go func() {
			require.NoError(t, x.Interrupt())
			close(lent)
			time.Sleep(time.Second)
			x.Release()
		}()
		_, event, err := x.Take(ctx)
		require.NoError(t, err)
		require.Equal(t, intake.Interrupted, event)
		x.Release()
		<-lent
		begin := time.Now()
		require.NoError(t, x.Acquire(ctx))
		require.Equal(t, time.Second, time.Since(begin))

		waits, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		require.ErrorIs(t, x.Acquire(waits), context.DeadlineExceeded)
		x.Release()
	})
}

// However many want the turn, for a while or for as long as it takes, one has it at a time, and all who do not give up get it.
func TestTurn(t *testing.T) {
	each(t, func(t *testing.T, c *consumer, x *intake.Intake, _ func()) {
		var all sync.WaitGroup
		var having, had atomic.Int32
		has := func() {
			require.EqualValues(t, 1, having.Add(1))
			time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
			having.Add(-1)
			had.Add(1)
			x.Release()
		}
		for i := range 200 {
			all.Go(func() {
				time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
				switch i % 4 {
				case 0:
					require.NoError(t, x.Interrupt())
				case 1:
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(20))*time.Millisecond)
					defer cancel()
					if err := x.Acquire(ctx); err != nil {
						had.Add(1)
						return
					}
				default:
					require.NoError(t, x.Acquire(context.Background()))
				}
				has()
			})
		}
		all.Wait()
		require.EqualValues(t, 200, had.Load())
	})
}

// Borrowers get the turn in the order in which they came, behind those who waited before them. Nobody gives the turn up for a borrower that has had it.
func TestBorrowInOrder(t *testing.T) {
	each(t, func(t *testing.T, c *consumer, x *intake.Intake, _ func()) {
		ctx := context.Background()
		require.NoError(t, x.Acquire(ctx))
		var order []string
		var others sync.WaitGroup
		others.Go(func() {
			require.NoError(t, x.Acquire(ctx))
			order = append(order, "waited")
			x.Release()
		})
		synctest.Wait()
		for _, name := range []string{"borrowed", "borrowed as well"} {
			others.Go(func() {
				require.NoError(t, x.Interrupt())
				order = append(order, name)
				x.Release()
			})
			synctest.Wait()
		}
		for {
			if _, event, _ := x.Take(ctx); event == intake.Interrupted {
				break
			}
		}
		x.Release()
		others.Wait()
		require.Equal(t, []string{"waited", "borrowed", "borrowed as well"}, order)
		require.NoError(t, x.Acquire(ctx))
		ended, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		for {
			_, event, err := x.Take(ended)
			if require.NotEqual(t, intake.Interrupted, event); err != nil {
				break
			}
		}
		x.Release()
	})
}

// Two who borrow the turn again and again keep neither a third from it nor one who receives.
func TestNobodyStarves(t *testing.T) {
	each(t, func(t *testing.T, _ *consumer, x *intake.Intake, _ func()) {
		require.NoError(t, x.Interrupt())
		var all sync.WaitGroup
		waits := func(wait func() error) {
			begin := time.Now()
			all.Go(func() {
				require.NoError(t, wait())
				require.Less(t, time.Since(begin), time.Second)
				x.Release()
			})
			synctest.Wait()
		}
		waits(func() error { return x.Acquire(context.Background()) })
		waits(x.Interrupt)
		end := time.Now().Add(time.Minute)
		for range 2 {
			all.Go(func() {
				for time.Now().Before(end) {
					require.NoError(t, x.Interrupt())
					time.Sleep(10 * time.Millisecond)
					x.Release()
				}
			})
			synctest.Wait()
		}
		x.Release()
		all.Wait()
	})
}

// One who takes the turn again and again, before anybody who was woken looks, does not keep it from one who waits.
func TestWokenInVain(t *testing.T) {
	each(t, func(t *testing.T, _ *consumer, x *intake.Intake, _ func()) {
		ctx := context.Background()
		require.NoError(t, x.Acquire(ctx))
		var had atomic.Bool
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				require.NoError(t, x.Acquire(ctx))
				had.Store(true)
				x.Release()
			})
		}
		synctest.Wait()
		for range 3 {
			x.Release()
			require.NoError(t, x.Acquire(ctx))
			synctest.Wait() // whoever was woken has looked
		}
		require.True(t, had.Load())
		x.Release()
		all.Wait()
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
