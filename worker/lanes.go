package worker

import (
	"context"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/attempts"
)

// lanes keeps the order of messages within each key. A slot that wants a message takes a waiting one, or receives one
// from the Consumer. One slot at a time receives.
type lanes struct {
	*run

	mu         sync.Mutex // guards the fields below; the Consumer is not called while it is held
	keys       keys
	room       room
	cancelPull context.CancelFunc // ends the Receive of the slot that takes from the Consumer; nil if none does
	idle       int                // slots that wait for wake
	// the message taken last had failed before, and pulls since then brought only messages that wait
	triedLast bool

	wake chan struct{} // wakes one of the idle slots
}

func newLanes(r *run) *lanes {
	return &lanes{run: r, keys: keys{lanes: map[laneKey]*lane{}},
		room: room{over: map[attempts.Key]pulsar.Message{}}, wake: make(chan struct{}, 1)}
}

// step says how a slot gets its next message.
type step uint8

const (
	stepEnd  step = iota // the slot's context has ended
	stepTake             // the slot has taken a message that waited
	stepPull             // the slot takes messages from the Consumer
	stepIdle             // the slot waits
)

// next returns a message that may be handled.
func (l *lanes) next(ctx context.Context) (task, error) {
	for {
		switch step, t, pull := l.step(ctx); step {
		case stepEnd:
			return task{}, ctx.Err()
		case stepTake:
			l.notifyRoom()
			if l.mayBegin(t) {
				return t, nil
			}
		case stepPull:
			if t, out, err := l.pull(pull); out || err != nil {
				return t, err
			}
		case stepIdle:
			select {
			case <-l.wake:
			case <-ctx.Done():
			}
			l.mu.Lock()
			l.idle--
			l.mu.Unlock()
		}
	}
}

// step decides how a slot gets its next message. After a waiting message that failed before, a message of the Consumer
// is next: otherwise keys that always fail would keep the other keys waiting.
func (l *lanes) step(ctx context.Context) (s step, t task, pull context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	mayPull := l.cancelPull == nil && !l.isFull()
	switch {
	case ctx.Err() != nil:
		l.wakeOne() // in place of this slot
		return stepEnd, t, nil
	case len(l.keys.ready) > 0 && !(mayPull && l.triedLast):
		t = l.keys.take()
		l.triedLast = t.tries > 0
		l.wakeOne()
		return stepTake, t, nil
	case mayPull:
		pull, l.cancelPull = context.WithCancel(ctx)
		if len(l.keys.ready) > 0 {
			go l.cancelPull() // so that Receive returns at once, with a message if one is there
		}
		return stepPull, t, pull
	default:
		l.idle++
		return stepIdle, t, nil
	}
}

// pull takes a message from the Consumer. out is false if the caller gets no message: Receive was interrupted, or the
// message waits for its key, is still in a handler, or was dropped.
func (l *lanes) pull(ctx context.Context) (t task, out bool, err error) {
	var waits bool
	t.msg, err = l.consumer.Receive(ctx)
	if err != nil && ctx.Err() != nil {
		err = nil
	} else if err == nil && !l.isAtWork(t.msg) {
		l.mu.Lock()
		out = l.keys.enter(&t)
		waits = !out
		l.mu.Unlock()
	}
	if waits {
		l.checkRoom(t.msg) // before another message is taken
	}
	l.mu.Lock()
	l.triedLast = l.triedLast && waits
	l.cancelPull()
	l.cancelPull = nil
	l.wakeOne()
	l.mu.Unlock()
	return t, out && (t.lane == nil || l.mayBegin(t)), err
}

// keep makes a failed message, and its key, wait until the next try.
func (l *lanes) keep(t task, o outcome) {
	d, err := l.consumer.Delivery(t.counted())
	if err == nil {
		err = l.consumer.InProgress(t.msg)
	}
	if err != nil {
		l.leave(t, "it failed, and could not wait for its next try", err)
		l.forget(&t)
		return
	}
	if o.verb == nack {
		o.delay = d.NackDelay
	}
	t.retries = 0
	if o.verb != snooze {
		t.tries++
	}
	l.checkRoom(t.msg)
	l.freeRoom() // the Consumer may have made room for others
	if !l.wait(t, o.delay) {
		l.leave(t, "it failed after Run returned", o.err)
	}
}

// wait puts a message back into its lane, and delays the lane. If an earlier message of the key arrives during the
// delay, that message goes first. wait reports false if the Run has ended.
func (l *lanes) wait(t task, d time.Duration) bool {
	defer l.notifyRoom()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hasEnded() {
		return false
	}
	l.keys.putBack(t)
	t.lane.timer = time.AfterFunc(d, func() { l.free(t.lane) })
	return true
}

// free lets a slot take the next message of a lane, if there is one.
func (l *lanes) free(of *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of.timer = nil
	if l.hasEnded() || !l.keys.release(of) {
		return
	}
	if l.idle == 0 && l.cancelPull != nil {
		l.cancelPull() // or no slot would notice
	}
	l.wakeOne()
}

func (l *lanes) wakeOne() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// stats returns how many messages wait, and whether they reached the memory limit.
func (l *lanes) stats() (waiting int, full bool) {
	if l == nil {
		return 0, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.keys.waiting, l.isFull()
}

// messages returns the messages that wait.
func (l *lanes) messages() (msgs []pulsar.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range l.keys.lanes {
		for i := range of.queue {
			msgs = append(msgs, of.queue[i].msg)
		}
	}
	return msgs
}

// readyNow counts the messages of producers' batches that a slot could take now.
func (l *lanes) readyNow() (n int) {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range l.keys.ready {
		if of.queue[0].msg.ID().BatchSize() > 1 {
			n++
		}
	}
	return n
}

// abandon leaves the waiting messages to the broker, at the end of a drain.
func (l *lanes) abandon() {
	if l == nil {
		return
	}
	l.mu.Lock()
	left := l.keys.clear()
	l.mu.Unlock()
	l.notifyRoom()
	l.leaveAll(left, "it waited for its key")
}
