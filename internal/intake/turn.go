package intake

import (
	"slices"
	"sync"
)

// turn is had by one at a time. Those who wait for it get it in the order in which they came, so that one that receives without
// a pause does not keep it from others.
type turn struct {
	mu      sync.Mutex
	taken   bool
	waiting []chan struct{}
}

// take takes the turn and returns nil, or returns a channel that is closed when the turn is the caller's: after those of all who
// wait or, for one that goes first, before them.
func (t *turn) take(first bool) (given chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.taken {
		t.taken = true
		return nil
	}
	given = make(chan struct{})
	at := len(t.waiting)
	if first {
		at = 0
	}
	t.waiting = slices.Insert(t.waiting, at, given)
	return given
}

// giveUp waits no longer.
func (t *turn) giveUp(given chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.waiting, given); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
		return
	}
	t.pass() // it is the caller's by now
}

func (t *turn) release() {
	t.mu.Lock()
	t.pass()
	t.mu.Unlock()
}

// pass passes the turn on. The caller holds mu.
func (t *turn) pass() {
	if len(t.waiting) == 0 {
		t.taken = false
		return
	}
	close(t.waiting[0])
	t.waiting = slices.Delete(t.waiting, 0, 1)
}
