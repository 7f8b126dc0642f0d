package random

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// guard is the testing.TB of a run. If the run hangs, it lists the running calls, and does not wait for cleanups that
// hang.
type guard struct {
	testing.TB
	seed     uint64
	patience time.Duration // how long a call may take
	over     atomic.Bool   // the run is over, and calls may take long

	mu       sync.Mutex
	calls    map[int]call
	begun    int
	cleanups []func()
}

// call is a running call of the library.
type call struct {
	what  string
	began time.Time
}

// begin records that a call begins, and end that the call has returned.
func (g *guard) begin(what string) (end func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.begun++
	n := g.begun
	g.calls[n] = call{what, time.Now()}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.calls, n)
	}
}

// Cleanup implements testing.TB. The method clean calls f.
func (g *guard) Cleanup(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cleanups = append(g.cleanups, f)
}

// clean calls the cleanups, the last one first, and returns false if they hang.
func (g *guard) clean(patience time.Duration) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.mu.Lock()
		cleanups := g.cleanups
		g.mu.Unlock()
		for _, f := range slices.Backward(cleanups) {
			f()
		}
	}()
	select {
	case <-done:
		return true
	case <-time.After(patience):
		return false
	}
}

// hanging returns the names of calls that take too long.
func (g *guard) hanging() (hang []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.calls {
		patience := g.patience
		if c.what == "Stats" { // Stats only waits for a lock
			patience = 15 * time.Second
		}
		if d := time.Since(c.began); d > patience {
			hang = append(hang, fmt.Sprintf("%s hangs for %v", c.what, d.Round(time.Second)))
		}
	}
	return hang
}

// runWatched makes the run in a goroutine of its own, and fails the test if the run hangs.
func (r *randomRun) runWatched() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.run()
	}()
	var hang []string
	limit := time.After(5 * time.Minute)
	for finished := false; !finished && len(hang) == 0; {
		select {
		case <-done:
			finished = true
		case <-limit:
			hang = append(hang, "the run does not end")
		case <-time.After(200 * time.Millisecond):
			hang = r.guard.hanging()
		}
	}
	if len(hang) == 0 {
		r.guard.over.Store(true)
		if !r.t.Failed() { // a failure may have ended the run
			r.report()
		}
		if !r.guard.clean(time.Minute) {
			r.t.Errorf("-random.seed %d: closing the clients hangs: %+v\n%s", r.Seed, *r.randomConfig, stacks())
		}
		return
	}
	r.t.Errorf("-random.seed %d: %+v\n%s\n%s", r.Seed, *r.randomConfig, strings.Join(hang, "\n"), stacks())
	r.guard.over.Store(true)
	r.mu.Lock()
	if len(r.wrong) > 0 {
		r.t.Error(strings.Join(r.wrong[:min(12, len(r.wrong))], "\n"))
	}
	r.mu.Unlock()
	r.guard.clean(5 * time.Second)
}

// stacks returns the stacks of some goroutines of the library.
func stacks() string {
	buf := make([]byte, 1<<20)
	var some []string
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(stack, "redelivery/internal/") && len(some) < 8 {
			lines := strings.Split(stack, "\n")
			some = append(some, strings.Join(lines[:min(25, len(lines))], "\n"))
		}
	}
	return strings.Join(some, "\n\n")
}
