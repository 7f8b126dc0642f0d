package intake_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/intake"
)

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

// Those who interrupt get the turn in the order in which they came, behind those who waited before them. Nobody gives the turn up for one that has had it.
func TestInterruptInOrder(t *testing.T) {
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
		for _, name := range []string{"interrupted", "interrupted as well"} {
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
		require.Equal(t, []string{"waited", "interrupted", "interrupted as well"}, order)
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

// Two who interrupt again and again keep neither a third from it nor one who receives.
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
