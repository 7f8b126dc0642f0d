package redelivery

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// life says until when what was begun is to go on.
type life struct {
	closing atomic.Bool     // Close has begun
	closed  chan struct{}   // closed when it has ended
	ended   context.Context // Close began, or the inner consumer has closed itself
	end     context.CancelFunc
	cut     context.Context // what is still being published is given up: when ended is, but Close waits for a while
	endCut  context.CancelFunc

	mu      sync.Mutex
	session context.Context // ended by a Seek too: what was received before it is forgotten
	endIt   context.CancelFunc
}

func newLife() *life {
	l := &life{closed: make(chan struct{})}
	l.ended, l.end = context.WithCancel(context.Background())
	l.cut, l.endCut = context.WithCancel(context.Background())
	l.session, l.endIt = context.WithCancel(l.cut)
	context.AfterFunc(l.ended, func() {
		if !l.closing.Load() {
			l.endCut()
		}
	})
	return l
}

// now is the present session.
func (l *life) now() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session
}

// next begins another session.
func (l *life) next() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endIt()
	l.session, l.endIt = context.WithCancel(l.cut)
}

// chores are done by a goroutine that lives while there are any: what may wait for the broker must not hold up whoever
// receives. A Seek ends those that are left.
type chores struct {
	mu   sync.Mutex
	todo []chore
	busy bool
}

type chore struct {
	session context.Context
	do      func(context.Context)
}

// isBusy reports whether a chore is left.
func (ch *chores) isBusy() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.busy
}

// start adds a chore.
func (c *Consumer) start(ch *chores, do func(context.Context)) {
	session := c.life.now()
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.todo = append(ch.todo, chore{session, do})
	if !ch.busy && c.goroutines.Enter() {
		ch.busy = true
		go c.work(func() bool { return c.drain(ch) })
	}
}

// drain does the next chore, if there is one, and reports whether to look for another.
func (c *Consumer) drain(ch *chores) (more bool) {
	ch.mu.Lock()
	if len(ch.todo) == 0 || c.life.ended.Err() != nil {
		ch.todo, ch.busy = nil, false
		ch.mu.Unlock()
		c.goroutines.Leave()
		return false
	}
	next := ch.todo[0]
	ch.todo = ch.todo[1:]
	ch.mu.Unlock()
	return next.session.Err() != nil || c.outside(func() { c.safely(func() { next.do(next.session) }) })
}

// work takes one step after the other, as a goroutine of the Consumer, until one reports that there are no more. Code that is not ours may
// call runtime.Goexit: another goroutine goes on then.
func (c *Consumer) work(step func() bool) {
	exited := true
	defer func() {
		if !exited {
			return
		}
		c.fail("callback", "a callback", errExited)
		if c.goroutines.Enter() {
			go c.work(step)
		}
	}()
	for step() {
		continue
	}
	exited = false
}

var errExited = errors.New("runtime.Goexit was called")

// outside calls what is not our code from a goroutine of the Consumer, which leaves meanwhile: it may call Close, which waits for
// them. outside reports false if the Consumer was closed, so that the goroutine must end.
func (c *Consumer) outside(call func()) bool {
	c.goroutines.Leave()
	call()
	return c.goroutines.Enter()
}
