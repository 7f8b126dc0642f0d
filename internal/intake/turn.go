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
	spare   []chan struct{} // of those who have waited
}

// take takes the turn and returns nil, or returns a channel that has one when the turn is the caller's: after those of all who
// wait or, for one that goes first, before them. done or giveUp must follow then.
func (t *turn) take(first bool) (given chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.taken {
		t.taken = true
		return nil
	}
	if n := len(t.spare); n > 0 {
		given, t.spare = t.spare[n-1], t.spare[:n-1]
	} else {
		given = make(chan struct{}, 1)
	}
	at := len(t.waiting)
	if first {
		at = 0
	}
	t.waiting = slices.Insert(t.waiting, at, given)
	return given
}

// done waits no longer, since the turn is the caller's.
func (t *turn) done(given chan struct{}) {
	t.mu.Lock()
	t.spare = append(t.spare, given)
	t.mu.Unlock()
}

// giveUp waits no longer, and does not take the turn.
func (t *turn) giveUp(given chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.waiting, given); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	} else { // it is the caller's by now
		<-given
		t.pass()
	}
	t.spare = append(t.spare, given)
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
	t.waiting[0] <- struct{}{}
	t.waiting = slices.Delete(t.waiting, 0, 1)
}
