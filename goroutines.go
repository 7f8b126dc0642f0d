package redelivery

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// gate counts calls under way, so that Close can refuse further calls and wait for the others.
type gate struct {
	n         atomic.Int64  // calls under way, plus shutMark once the gate is shut
	idle      chan struct{} // closed when the gate is shut and no call is under way
	closeIdle sync.Once
}

// shutMark is added to n when the gate is shut.
const shutMark = math.MinInt64

func newGate() *gate { return &gate{idle: make(chan struct{})} }

// enter begins a call. It returns false if the gate is shut. After true, leave must follow.
func (g *gate) enter() bool {
	if g.n.Add(1) > 0 {
		return true
	}
	g.leave()
	return false
}

func (g *gate) leave() { g.add(-1) }

// shut makes enter return false from now on. Call it once.
func (g *gate) shut() { g.add(shutMark) }

func (g *gate) add(n int64) {
	if g.n.Add(n) == shutMark {
		g.closeIdle.Do(func() { close(g.idle) })
	}
}

// wait returns when no call is under way, or after limit; a limit of 0 means none. The gate must be shut.
func (g *gate) wait(limit time.Duration) {
	if limit == 0 {
		<-g.idle
		return
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-g.idle:
	case <-timer.C:
	}
}

// isQuiet reports whether no call is under way.
func (g *gate) isQuiet() bool { return g.n.Load()&math.MaxInt64 == 0 }

// queue calls functions one after the other, on a goroutine that runs while there are functions to call.
type queue struct {
	mu      sync.Mutex
	todo    []func()
	running bool
}

// add lets the queue call do, unless the Consumer is closed first. do may call any method of the Consumer, Close
// included: Close does not wait for do.
func (q *queue) add(c *Consumer, do func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.todo = append(q.todo, do)
	if !q.running && c.goroutines.enter() {
		q.running = true
		go q.run(c)
	}
}

func (q *queue) run(c *Consumer) {
	for {
		q.mu.Lock()
		if len(q.todo) == 0 || c.isOver() {
			q.todo, q.running = nil, false
			q.mu.Unlock()
			c.goroutines.leave()
			return
		}
		do := q.todo[0]
		q.todo[0] = nil
		q.todo = q.todo[1:]
		q.mu.Unlock()
		if !c.outside(do) {
			return
		}
	}
}

// clear forgets the functions that have not been called yet.
func (q *queue) clear() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.todo = nil
}

func (q *queue) isBusy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.running
}

// outside calls code of the application from a goroutine of the Consumer. The code may call Close, so Close does not
// wait for it. outside returns false if the Consumer was closed: then the goroutine must end at once.
func (c *Consumer) outside(call func()) bool {
	c.goroutines.leave()
	call()
	return c.goroutines.enter()
}

// signal lets goroutines wait for the next event of a kind. The zero value is ready for use.
type signal struct {
	mu   sync.Mutex
	next chan struct{} // closed at the next event; nil if no goroutine has asked for it
}

// wait returns a channel that is closed at the next event.
func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = make(chan struct{})
	}
	return s.next
}

// send wakes all goroutines that wait.
func (s *signal) send() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next != nil {
		close(s.next)
		s.next = nil
	}
}

// turn is a lock that a goroutine can stop waiting for. Only the goroutine that has the turn reads from upstream. A
// free turn goes to the goroutine that comes first, which need not be one that waits. So the scheduler need not switch
// to another goroutine for each message.
type turn struct {
	held    atomic.Bool
	waiting atomic.Int32  // goroutines that wait for the turn
	free    chan struct{} // wakes one of them
}

func newTurn() *turn { return &turn{free: make(chan struct{}, 1)} }

// take waits for the turn.
func (t *turn) take(ctx context.Context, ended <-chan struct{}) error {
	if t.tryTake() {
		return nil
	}
	t.waiting.Add(1)
	defer t.waiting.Add(-1)
	for !t.tryTake() {
		select {
		case <-t.free:
		case <-ctx.Done():
			return ctx.Err()
		case <-ended:
			return ErrClosed
		}
	}
	return nil
}

// tryTake takes the turn if no goroutine has it.
func (t *turn) tryTake() bool { return t.held.CompareAndSwap(false, true) }

func (t *turn) give() {
	t.held.Store(false)
	if t.waiting.Load() > 0 {
		select {
		case t.free <- struct{}{}:
		default: // a goroutine is being woken already
		}
	}
}

const (
	// answerTime is longer than the broker usually takes for an answer.
	answerTime = time.Second
	// maxAhead is how many messages are read ahead at most.
	maxAhead = 10_000
)

// acknowledge calls f, which acknowledges messages. With AckWithResponse it reads ahead until the broker has answered,
// and does not wait for f once the Consumer is closed or gives up.
func (c *Consumer) acknowledge(f func() error) error {
	if !c.settings.opts.AckWithResponse {
		return f()
	}
	defer c.readAhead()()
	return c.untilEnded(f)
}

// readAhead is for a caller that waits for an answer of the broker. If the answer takes longer than answerTime,
// readAhead reads messages from the inner consumer until stop is called. pulsar-client-go reads nothing from a
// connection while the queue of one of its consumers is full, not even the answer; and the application may take no
// message before it has that answer. The queue becomes full when a batch has come again without its acknowledged
// messages: pulsar-client-go then permits the broker to send as many more messages as were left out. If the broker
// leaves out none, readAhead reads nothing: it would keep messages from other consumers for as long as a topic is away.
func (c *Consumer) readAhead() (stop func()) {
	answered := make(chan struct{})
	late := time.AfterFunc(answerTime, func() {
		now := c.lock()
		leavesOut := c.group.MayLeaveOut(now)
		c.mu.Unlock()
		if !leavesOut || !c.goroutines.enter() {
			return
		}
		defer c.goroutines.leave()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			if c.turn.tryTake() { // otherwise another goroutine receives
				c.reader.ReadAhead(maxAhead)
				c.turn.give()
			}
			select {
			case <-tick.C:
			case <-answered:
				return
			case <-c.ended.Done():
				return
			}
		}
	})
	return sync.OnceFunc(func() {
		late.Stop()
		close(answered)
	})
}
