// Package gate counts the calls that are under way, so that whoever closes something can wait for them.
package gate

import (
	"sync/atomic"
	"time"
)

// Gate lets calls in until it is shut. Any number of goroutines may use it.
type Gate struct {
	calls atomic.Int64 // with the bit shut
	idle  chan struct{}
}

const shut = 1 << 62

// New returns an open gate.
func New() *Gate { return &Gate{idle: make(chan struct{}, 1)} }

// Enter begins a call, and reports false if the gate is shut. After true, Leave must follow.
func (g *Gate) Enter() bool {
	if g.calls.Add(1)&shut == 0 {
		return true
	}
	g.Leave()
	return false
}

// Leave ends a call.
func (g *Gate) Leave() {
	if g.calls.Add(-1) == shut {
		select {
		case g.idle <- struct{}{}:
		default: // it is told already
		}
	}
}

// Shut lets no more calls in. It is called once.
func (g *Gate) Shut() { g.calls.Add(shut) }

// Wait returns when no call is under way, or after patience. The gate is shut, and one goroutine waits.
func (g *Gate) Wait(patience time.Duration) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for g.calls.Load() != shut {
		select {
		case <-g.idle:
		case <-timer.C:
			return
		}
	}
}

// IsQuiet reports whether no call is under way.
func (g *Gate) IsQuiet() bool { return g.calls.Load()&^shut == 0 }
