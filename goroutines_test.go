package redelivery

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Goroutines take the turn. Some stop waiting at the moment at which the turn is passed to them.
func TestOneGoroutineAtATimeHasTheTurn(t *testing.T) {
	turn := newTurn()
	var holders, taken atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 2000 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(20))*time.Microsecond)
				if turn.take(ctx, nil) == nil {
					if holders.Add(1) > 1 {
						t.Error("two goroutines have the turn")
					}
					taken.Add(1)
					holders.Add(-1)
					turn.give()
				}
				cancel()
			}
		})
	}
	all.Wait()
	assert.Positive(t, taken.Load())
	assert.Zero(t, turn.waiting.Load())
	assert.True(t, turn.tryTake())
}

// A waiting goroutine is woken although others that do not wait may take the turn first.
func TestTurnWakesEachGoroutineThatWaits(t *testing.T) {
	turn := newTurn()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20_000 {
				assert.NoError(t, turn.take(context.Background(), nil))
				turn.give()
			}
		})
	}
	all.Wait()
	assert.Zero(t, turn.waiting.Load())
}

func TestTurnThatIsNotFreeIsAwaitedUntilTheContextEnds(t *testing.T) {
	turn, ended := newTurn(), make(chan struct{})
	require.NoError(t, turn.take(context.Background(), nil))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	assert.ErrorIs(t, turn.take(ctx, ended), context.Canceled)
	close(ended)
	assert.ErrorIs(t, turn.take(context.Background(), ended), ErrClosed)
	turn.give()
	assert.NoError(t, turn.take(ctx, ended), "free")
}

func TestGateIsIdleOnceShutAndLeft(t *testing.T) {
	g := newGate()
	assert.True(t, g.isQuiet())
	assert.True(t, g.enter())
	assert.False(t, g.isQuiet())
	g.shut()
	assert.False(t, g.enter())
	select {
	case <-g.idle:
		t.Error("a call is under way")
	default:
	}
	g.leave()
	<-g.idle
	assert.True(t, g.isQuiet())
	assert.False(t, g.enter())
}
