package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
)

// ErrStuck says that the Worker cannot go on because too many handlers do not return. Run and Healthy return errors that wrap it.
var ErrStuck = errors.New("worker: too many handlers are stuck")

// errHangs is why a message becomes a dead letter whose handler does not return.
var errHangs = errors.New("worker: the handler of an earlier delivery has not returned")

// Healthy returns nil as long as there is no reason to restart the Worker; use it for a /healthz endpoint. It also returns nil before Run,
// while the Worker is paused, and in an outage. It returns an error that wraps ErrStuck if as many handlers as WithConcurrency are stuck, though
// others may handle messages in their places; an error that wraps redelivery.ErrClosed if the Consumer was closed or gave up; and an error
// after Run has returned.
func (w *Worker) Healthy() error {
	select {
	case <-w.consumer.Done():
		return fmt.Errorf("worker: the consumer is lost: %w", redelivery.ErrClosed)
	default:
	}
	r := w.run.Load()
	switch {
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

// ended says why Run has returned.
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

// isAtWork reports whether a handler has a message that came again. The message is not to be handled by two at a time: it is put aside
// until the handler returns, whose result settles it, or until the handler is known to be stuck.
func (r *run) isAtWork(t task) bool {
	if t.msg.RedeliveryCount() == 0 {
		return false
	}
	of := nameOf(t.msg)
	for _, s := range r.all() {
		switch i, hangs := s.find(of); {
		case i < 0:
			continue
		case !hangs && t.beat == nil:
			t.beat = r.heartbeat(t.msg, time.Time{})
			fallthrough
		case !hangs:
			if !s.putAside(i, t) { // the handler has returned meanwhile
				return false
			}
		default:
			r.startInVain(t)
		}
		return true
	}
	return false
}

// startInVain has a message come in vain in a goroutine of its own: a dead letter may take long, and the caller takes messages for all.
func (r *run) startInVain(t task) { r.alive.Go(func() { r.comesInVain(t) }) }

// comesInVain has a message come again whose handler is stuck. Each time it counts, so that it becomes a dead letter in the end.
func (r *run) comesInVain(t task) {
	t.lane = nil // that is the handler's
	r.settle(r.lasting, t, outcome{verb: nack, err: errHangs})
}

// find returns the place of a message among those that the slot's handler has, or -1, and reports whether the handler hangs: then the slot is not
// to keep the message.
func (s *slot) find(of name) (i int, hangs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.tasks { // their heartbeats are being set
		if s.stage == handling && nameOf(s.tasks[i].msg) == of {
			if s.lost {
				s.goes(i)
			}
			return i, s.lost
		}
	}
	return -1, false
}

// putAside keeps a message that came again until the slot's handler returns, and reports false if it has.
func (s *slot) putAside(i int, t task) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stage != handling || s.lost || i >= len(s.tasks) || nameOf(s.tasks[i].msg) != nameOf(t.msg) {
		return false
	}
	if s.again == nil {
		s.again = map[int]task{}
		if since := s.since; s.timeout == 0 { // else the time counts from the end of its context, also if a reconnection brings the message sooner
			time.AfterFunc(s.stuckLimit, func() { s.losePlace(since) })
		}
	}
	s.again[i].beat.stop()
	s.again[i] = t
	return true
}

// goes notes that a message is settled without the slot's handler. The caller holds mu.
func (s *slot) goes(i int) {
	if s.gone == nil {
		s.gone = map[int]bool{}
	}
	s.gone[i] = true
}

// isGone reports whether a message was settled without the slot's handler.
func (s *slot) isGone(i int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone[i]
}

// returned has the slot settle what its handler had: the newest delivery of what came again while that was at work.
func (s *slot) returned() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stage = settling
	for i, t := range s.again {
		s.tasks[i].beat.stop()
		s.tasks[i].msg, s.tasks[i].beat = t.msg, t.beat
	}
	s.again = nil
}

// losePlace has another slot take the place of one whose handler, which was called at a time, does not return.
func (s *slot) losePlace(since time.Duration) {
	s.mu.Lock()
	if s.stage != handling || s.since != since || s.lost || s.taking.Err() != nil {
		s.mu.Unlock()
		return
	}
	next := &slot{run: s.run, tasks: slices.Clone(s.tasks[s.with:]), size: s.size} // the handler has not got these
	clear(s.tasks[s.with:])
	s.tasks = s.tasks[:s.with]
	var again []task
	for i, t := range s.again {
		if rest := i - s.with; rest >= 0 {
			next.tasks[rest].beat.stop()
			next.tasks[rest].msg, next.tasks[rest].beat = t.msg, t.beat
			continue
		}
		s.goes(i)
		again = append(again, t)
	}
	s.lost, s.again = true, nil
	s.mu.Unlock()
	s.run.replaceBy(next)
	for _, t := range again {
		s.comesInVain(t)
	}
}

// replaceBy begins another slot, unless more handlers are stuck than there may be.
func (r *run) replaceBy(next *slot) {
	stuck := 0
	for _, s := range r.all() {
		s.mu.Lock()
		if s.lost {
			stuck++
		}
		s.mu.Unlock()
	}
	r.mu.Lock()
	switch {
	case r.taking.Err() != nil:
	case stuck > r.concurrency:
		r.lost = fmt.Errorf("%w: %d, with WithConcurrency(%d)", ErrStuck, stuck, r.concurrency)
		r.stop()
	default:
		r.slots = append(r.slots, next)
		r.alive.Go(next.loop)
		next = nil
	}
	r.mu.Unlock()
	if next != nil {
		next.leaveOwn(untried)
	}
}

// leaves reports whether the slot is to end, since another has its place. First it handles the messages that it still has.
func (s *slot) leaves() bool {
	leaves := s.lost && len(s.tasks) == 0 // no lock: a place is lost only while the handler is at work
	if leaves {
		s.run.mu.Lock()
		s.slots = slices.DeleteFunc(s.slots, func(other *slot) bool { return other == s })
		s.run.mu.Unlock()
		s.giveBackAtRest() // the others may rest, and have waited for this one's handler
	}
	return leaves
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
	if s.stage != handling || s.endCall == nil { // and the slot may be changing what it has
		s.mu.Unlock()
		return
	}
	var msgs []pulsar.Message
	for i := range s.tasks {
		msgs = append(msgs, s.tasks[i].msg)
	}
	since, end := s.since, s.endCall
	s.mu.Unlock()
	for _, msg := range msgs {
		if d, err := s.consumer.Delivery(msg); err == nil && !d.Lost {
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endCall != nil && s.since == since {
		end(ErrLost)
	}
}

// whileOurs returns a context that ends when the messages of the call are lost.
func (s *slot) whileOurs(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	s.endCall = cancel
	s.mu.Unlock()
	return ctx, func() {
		s.mu.Lock()
		s.endCall = nil
		s.mu.Unlock()
		cancel(nil)
	}
}

// names says which messages they are. The caller holds mu.
func (s *slot) names() string {
	name := fmt.Sprintf("message %v", s.tasks[0].msg.ID())
	if n := len(s.tasks) - 1; n > 0 {
		name += fmt.Sprintf(" and %d more", n)
	}
	return name
}
