package redelivery

import (
	"context"
	"math/rand/v2"
	"runtime"
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
	assert.Zero(t, turn.wanted.Load())
	assert.Empty(t, turn.free)
}

// A goroutine that stops waiting does not wait for another one that gets the turn at that moment. Without the rule this
// test fails after some 50,000 rounds.
func TestTurnThatAnotherGoroutineTakesIsNotAwaited(t *testing.T) {
	for begin := time.Now(); time.Since(begin) < time.Second; {
		turn, returned := newTurn(), make(chan struct{})
		require.NoError(t, turn.take(context.Background(), nil))
		ctx, cancel := context.WithCancel(context.Background())
		var start atomic.Bool
		var all sync.WaitGroup
		all.Go(func() {
			if turn.take(ctx, nil) == nil {
				turn.give()
			}
			close(returned)
		})
		spins := rand.IntN(300)
		all.Go(func() {
			for !start.Load() {
				runtime.Gosched()
			}
			for range spins {
				_ = turn.wanted.Load()
			}
			assert.NoError(t, turn.take(context.Background(), nil))
			select {
			case <-returned:
			case <-time.After(10 * time.Second):
				t.Error("a goroutine whose context has ended still waits for the turn")
			}
			turn.give()
		})
		for turn.wanted.Load() < 2 {
			runtime.Gosched()
		}
		start.Store(true)
		cancel()
		for range rand.IntN(300) {
			_ = turn.wanted.Load()
		}
		turn.give()
		all.Wait()
		require.Zero(t, turn.wanted.Load())
	}
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
