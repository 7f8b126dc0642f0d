package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// ErrStuck says that the Worker cannot go on because too many handlers do not return. Run and Healthy return errors
// that wrap it.
var ErrStuck = errors.New("worker: too many handlers are stuck")

// errHangs is the reason of the dead letter of a message whose handler does not return.
var errHangs = errors.New("worker: the handler of an earlier delivery has not returned")

// Healthy returns nil as long as there is no reason to restart the Worker; use it for a /healthz endpoint. It also
// returns nil before Run, while the Worker is paused, and in an outage. It returns an error that wraps ErrStuck if at
// least WithConcurrency handlers are stuck, even if other handlers took their places. It returns an error that wraps
// redelivery.ErrClosed if the Consumer was closed or gave up. It also returns an error after Run has returned.
func (w *Worker) Healthy() error {
	r := w.run.Load()
	switch {
	case w.isClosed():
		return errConsumerLost
	case r == nil:
		return nil
	case r.lasting.Err() != nil:
		return r.ended()
	}
	if _, stuck := r.inFlight(); stuck >= w.concurrency {
		return fmt.Errorf("%w: %d, with WithConcurrency(%d)", ErrStuck, stuck, w.concurrency)
	}
	return nil
}

// isClosed reports whether the Consumer was closed or has given up.
func (w *Worker) isClosed() bool {
	select {
	case <-w.consumer.Done():
		return true
	default:
		return false
	}
}

// ended returns an error that says why Run has returned.
func (r *run) ended() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(errors.New("worker: Run has returned"), r.lost)
}

// all returns the slots.
func (r *run) all() []*slot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.slots)
}

// isAtWork reports whether a handler still has a message that was redelivered. Then no second handler gets the message:
// the redelivery waits for the first handler, whose result settles the message. If that handler is stuck, the
// redelivery is nacked.
func (r *run) isAtWork(t *task) bool { return t.msg.RedeliveryCount() > 0 && r.takesOver(*t) }

// takesOver is isAtWork for a redelivery.
func (r *run) takesOver(t task) bool {
	for _, s := range r.all() {
		switch has, stuck := s.has(t); {
		case !has:
		case stuck:
			r.startNackOfStuck(t)
			return true
		default:
			if t.beat == nil {
				t.beat = r.heartbeat(t.msg, time.Time{})
			}
			return s.keepNewer(t) // false if the handler has just returned
		}
	}
	return false
}

// startNackOfStuck calls nackOfStuck in a goroutine of its own: publishing a dead letter may take long, and the caller
// takes messages for all slots. (A closure in takesOver would allocate for each message that is received.)
func (r *run) startNackOfStuck(t task) { r.alive.Go(func() { r.nackOfStuck(t) }) }

// nackOfStuck nacks a message that came again while its handler is stuck. The nack counts as an attempt, so the message
// finally becomes a dead letter.
func (r *run) nackOfStuck(t task) {
	t.lane = nil // the lane belongs to the delivery that the handler has
	o := outcome{verb: nack, err: errHangs}.decide(attempt{last: t.isLast(r.consumer)})
	r.settle(r.lasting, &t, &o)
}

// find returns the index of a message in the slot's tasks. It returns -1 if the message is not there, or if the handler
// has returned. The caller holds mu.
func (s *slot) find(t task) int {
	if s.stage != handling {
		return -1
	}
	of := nameOf(t.msg)
	for i := range s.tasks {
		if nameOf(s.tasks[i].msg) == of {
			return i
		}
	}
	return -1
}

// has reports whether the slot's handler has a message, and whether the handler is stuck. If both are true, it marks
// the task: the message is settled without waiting for the handler.
func (s *slot) has(t task) (has, stuck bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(t)
	if i >= 0 && s.replaced {
		s.tasks[i].gone = true
	}
	return i >= 0, s.replaced
}

// keepNewer keeps t, a redelivery of a message that the slot's handler has, until the handler returns. It reports false
// if the handler has returned.
func (s *slot) keepNewer(t task) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(t)
	if i < 0 || s.replaced {
		return false
	}
	first := !slices.ContainsFunc(s.tasks, func(t task) bool { return t.newer != nil })
	// With a timeout the stuck limit counts from the end of the context, even if a reconnection brings the message
	// sooner.
	if first && s.timeout == 0 {
		call := s.calls
		time.AfterFunc(s.stuckLimit, func() { s.losePlace(call) })
	}
	if before := s.tasks[i].newer; before != nil {
		before.beat.stop()
	}
	s.tasks[i].newer = &t
	return true
}

// losePlace gives the slot's place to another slot, if the handler has not returned from a call.
func (s *slot) losePlace(call int) {
	s.mu.Lock()
	if s.stage != handling || s.calls != call || s.replaced || s.taking.Err() != nil {
		s.mu.Unlock()
		return
	}
	s.replaced = true
	// the new slot gets the messages that the handler has not got
	next := &slot{run: s.run, tasks: slices.Clone(s.tasks[s.called:]), portion: s.portion}
	clear(s.tasks[s.called:])
	s.tasks = s.tasks[:s.called]
	for i := range next.tasks {
		next.tasks[i].takeNewer()
	}
	var newer []task
	for i := range s.tasks {
		if t := &s.tasks[i]; t.newer != nil {
			newer = append(newer, *t.newer)
			t.newer, t.gone = nil, true
		}
	}
	s.mu.Unlock()
	s.replaceBy(next)
	for _, t := range newer {
		s.nackOfStuck(t)
	}
}

// replaceBy starts another slot. If too many handlers are stuck, it ends the Run instead.
func (r *run) replaceBy(next *slot) {
	stuck := 0
	for _, s := range r.all() {
		s.mu.Lock()
		if s.replaced {
			stuck++
		}
		s.mu.Unlock()
	}
	r.mu.Lock()
	begins := r.taking.Err() == nil && stuck <= r.concurrency
	switch {
	case begins:
		r.slots = append(r.slots, next)
		r.alive.Go(next.loop)
	case r.taking.Err() == nil:
		r.lost = fmt.Errorf("%w: %d, with WithConcurrency(%d)", ErrStuck, stuck, r.concurrency)
		r.stop()
	}
	r.mu.Unlock()
	if !begins {
		next.leaveOwn(untried)
	}
}

// leaves reports whether the slot ends: another slot has its place, and this slot holds no messages.
func (s *slot) leaves() bool {
	return s.replaced && len(s.tasks) == 0 // no lock: a place is lost only while the handler is at work
}

// remove takes a slot that has ended out of the slots.
func (r *run) remove(s *slot) {
	r.mu.Lock()
	r.slots = slices.DeleteFunc(r.slots, func(other *slot) bool { return other == s })
	r.mu.Unlock()
	r.giveBackAtRest() // the other slots may rest, and have waited for this slot's handler
}

// endOnLoss ends contexts of handlers whose messages are lost.
func (r *run) endOnLoss() {
	for {
		next := r.consumer.NextLoss()
		for _, s := range r.all() {
			s.endIfLost()
		}
		select {
		case <-next:
		case <-r.lasting.Done():
			return
		}
	}
}

// endIfLost ends the context of the handler if all its messages are lost.
func (s *slot) endIfLost() {
	s.mu.Lock()
	if s.stage != handling || s.endCall == nil { // in other stages the slot may be changing its messages
		s.mu.Unlock()
		return
	}
	var msgs []pulsar.Message
	for i := range s.tasks {
		msgs = append(msgs, s.tasks[i].msg)
	}
	call, end := s.calls, s.endCall
	s.mu.Unlock()
	for _, msg := range msgs {
		if d, err := s.consumer.Delivery(msg); err == nil && !d.Lost {
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endCall != nil && s.calls == call {
		end(ErrLost)
	}
}

func (s *slot) setEndCall(end context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endCall = end
}

// names describes the slot's messages for an error. The caller holds mu.
func (s *slot) names() string {
	name := fmt.Sprintf("message %v", s.tasks[0].msg.ID())
	if n := len(s.tasks) - 1; n > 0 {
		name += fmt.Sprintf(" and %d more", n)
	}
	return name
}
