package intake

import (
	"slices"
	"sync"
)

// turn is had by one at a time. Those who wait for it get it in the order in which they came, so that one that receives without
// a pause does not keep it from others.
type turn struct {
	lend chan struct{} // has one while somebody waits to borrow the turn: whoever waits for a message gives it up then

	mu        sync.Mutex
	taken     bool
	waiting   []waiter
	borrowers int             // of those who wait
	spare     []chan struct{} // of those who have waited
}

type waiter struct {
	given   chan struct{} // has one when the turn is the waiter's
	borrows bool
}

// take takes the turn, or begins to wait for it and returns a channel that has one when the turn is the caller's. done or giveUp must
// follow then.
func (t *turn) take(borrows bool) (given chan struct{}) {
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
	t.waiting = append(t.waiting, waiter{given, borrows})
	if borrows {
		t.borrowers++
		signal(t.lend)
	}
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
	if i := slices.IndexFunc(t.waiting, func(w waiter) bool { return w.given == given }); i >= 0 {
		t.leave(i)
	} else { // it is the caller's by now
		<-given
		t.pass()
	}
	t.spare = append(t.spare, given)
}

func (t *turn) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass()
}

// pass passes the turn on. The caller holds mu.
func (t *turn) pass() {
	if t.taken = len(t.waiting) > 0; t.taken {
		t.waiting[0].given <- struct{}{}
		t.leave(0)
	}
}

// leave takes one who waits out of the line. The caller holds mu.
func (t *turn) leave(i int) {
	borrows := t.waiting[i].borrows
	if borrows {
		t.borrowers--
	}
	t.waiting = slices.Delete(t.waiting, i, i+1)
	switch {
	case t.borrowers > 0:
		signal(t.lend)
	case borrows: // nobody does any more
		select {
		case <-t.lend:
		default:
		}
	}
}
