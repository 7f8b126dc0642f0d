package intake

import (
	"slices"
	"sync"
	"sync/atomic"
)

// turn is had by one at a time. Whoever comes while nobody has it takes it, though others wait: to switch to one of them for each message
// takes longer than the message. Whoever was woken in vain gets it next, and whoever interrupts as well, so that nobody starves.
type turn struct {
	interrupters atomic.Int32 // of those who wait: whoever waits for a message gives the turn up for them

	mu      sync.Mutex
	taken   bool
	waiting []*waiter
}

// waiter is one who waits for the turn.
type waiter struct {
	wake       chan struct{}
	woken      bool // and has not looked yet
	missed     bool // it was woken, and another had come first
	has        bool // it has the turn
	interrupts bool
}

// take takes the turn, or begins to wait for it: then the waiter looks each time that it is woken, until it has the turn or gives up.
func (t *turn) take(interrupts bool) *waiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.taken {
		t.taken = true
		return nil
	}
	w := &waiter{wake: make(chan struct{}, 1), interrupts: interrupts}
	t.waiting = append(t.waiting, w)
	if interrupts {
		t.interrupters.Add(1)
	}
	return w
}

// look reports whether a waiter that was woken has the turn. Then it waits no longer.
func (t *turn) look(w *waiter) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.woken = false
	if !w.has {
		if w.missed = t.taken; w.missed {
			return false
		}
		t.taken = true
		t.leave(w)
	}
	return true
}

// giveUp has a waiter wait no longer.
func (t *turn) giveUp(w *waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case w.has:
		t.pass()
	case t.taken:
		t.leave(w)
	default: // it may have been woken for nothing
		t.leave(w)
		t.pass()
	}
}

// isWanted reports whether somebody waits to interrupt.
func (t *turn) isWanted() bool { return t.interrupters.Load() > 0 }

func (t *turn) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass()
}

// pass lets whoever has the turn have it no longer. The caller holds mu.
func (t *turn) pass() {
	if t.taken = false; len(t.waiting) == 0 {
		return
	}
	w := t.waiting[0]
	if w.missed || t.isWanted() {
		t.taken, w.has = true, true
		t.leave(w)
	}
	if !w.woken {
		w.woken = true
		w.wake <- struct{}{}
	}
}

// leave takes a waiter out of the line. The caller holds mu.
func (t *turn) leave(w *waiter) {
	i := slices.Index(t.waiting, w)
	t.waiting = slices.Delete(t.waiting, i, i+1)
	if w.interrupts {
		t.interrupters.Add(-1)
	}
}
