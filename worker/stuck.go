package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/attempts"
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
		return r.endError()
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

// endError returns an error that says why Run has returned.
func (r *run) endError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(errors.New("worker: Run has returned"), r.lost)
}

// allSlots returns a copy of slots.
func (r *run) allSlots() []*slot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.slots)
}

// isAtWork reports whether a handler still has a message that was redelivered. Then no second handler gets the message:
// the redelivery waits for the first handler, whose result settles the message. If that handler is stuck, the
// redelivery is nacked.
func (r *run) isAtWork(msg pulsar.Message) bool { return msg.RedeliveryCount() > 0 && r.takesOver(msg) }

// takesOver is isAtWork for a redelivery.
func (r *run) takesOver(msg pulsar.Message) bool {
	for _, s := range r.allSlots() {
		has, stuck := s.keepNewer(msg)
		if stuck { // publishing a dead letter may take long, and the caller takes messages for all slots
			r.alive.Go(func() { r.nackOfStuck(msg) })
		}
		if has {
			return true
		}
	}
	return false
}

// nackOfStuck nacks a message that came again while its handler is stuck. The nack counts as an attempt, so the message
// finally becomes a dead letter.
func (r *run) nackOfStuck(msg pulsar.Message) {
	t := task{msg: msg} // without a lane: the lane belongs to the delivery that the handler has
	o := outcome{verb: nack, err: errHangs}.decide(attempt{last: t.isLast(r.consumer)})
	r.settle(r.lasting, &t, &o)
}

// keepNewer keeps a redelivery of a message that the slot's handler has, until the handler returns. has is false if the
// handler does not have the message, or has returned. If the handler is stuck, keepNewer marks the task instead: the
// message is settled without waiting for the handler.
func (s *slot) keepNewer(msg pulsar.Message) (has, stuck bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stage != handling { // in other stages the slot may be changing its messages
		return false, false
	}
	of := attempts.KeyOf(msg)
	i := slices.IndexFunc(s.tasks, func(t task) bool { return attempts.KeyOf(t.msg) == of })
	switch {
	case i < 0:
		return false, false
	case s.replaced:
		s.tasks[i].gone = true
		return true, true
	}
	// With a timeout the stuck limit counts from the end of the context, even if a reconnection brings the message
	// sooner.
	if s.timeout == 0 && !slices.ContainsFunc(s.tasks, func(t task) bool { return t.newer != nil }) {
		call := s.calls
		time.AfterFunc(s.stuckLimit, func() { s.losePlace(call) })
	}
	s.tasks[i].newer = msg
	return true, false
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
	var newer []pulsar.Message
	for i := range s.tasks {
		if t := &s.tasks[i]; t.newer != nil {
			newer = append(newer, t.newer)
			t.newer, t.gone = nil, true
		}
	}
	s.alive.Go(func() { // while mu is held, the slot has not ended, so Run cannot miss this goroutine
		s.replaceBy(next)
		for _, msg := range newer {
			s.nackOfStuck(msg)
		}
	})
	s.mu.Unlock()
}

// replaceBy starts another slot. If too many handlers are stuck, it ends the Run instead.
func (r *run) replaceBy(next *slot) {
	r.mu.Lock()
	stuck := len(r.slots) + 1 - r.concurrency
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
		for _, s := range r.allSlots() {
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
	end := s.endCall
	if end == nil { // no call is under way, and the slot may be changing its messages
		s.mu.Unlock()
		return
	}
	tasks := slices.Clone(s.tasks)
	s.mu.Unlock()
	for _, t := range tasks {
		if d, err := s.consumer.Delivery(t.msg); err == nil && !d.Lost {
			return
		}
	}
	end(ErrLost) // if the handler has returned meanwhile, nobody has this context any more
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
