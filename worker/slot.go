package worker

import (
	"context"
	"sync"
	"time"
)

// slot is one of the places where messages are handled at the same time. It takes messages, calls the handler, and
// settles them, all in one goroutine, so that a handler that does not return keeps its place.
type slot struct {
	*run
	portion  int           // how many messages of a halved batch the handler gets next; 0 for all
	outcomes []outcome     // of the messages that the handler has, or had last; the handler sets only their errors
	whole    bool          // the batch failed as a whole
	pause    time.Duration // before a local retry
	probe    func()        // ends the try of a message in an outage; nil for none
	returned func()        // notes, for the crash limit, that the handler has returned; nil without a crash limit

	mu       sync.Mutex // guards the fields below, which only the slot changes, except where a comment says otherwise
	tasks    []task     // messages that the slot holds; a slot that takes a redelivery of a task sets the task's newer
	called   int        // how many of tasks, from the first on, the handler has got
	stage    stage
	calls    int                     // calls of the handler, including the one under way
	since    time.Duration           // when the handler was called, by run.now; only with a timeout, or if isTimed
	endCall  context.CancelCauseFunc // ends the handler's context; nil without WithCancelLost
	replaced bool                    // another slot has its place, since its handler did not return; losePlace sets it
	name     string                  // of its goroutine, as stacks show it
}

type stage uint8

const (
	waiting stage = iota
	handling
	settling
)

// loop handles messages until no more messages will come.
func (s *slot) loop() {
	s.mu.Lock()
	s.name = goroutine()
	s.mu.Unlock()
	defer func() {
		if s.stage == handling { // the handler called runtime.Goexit
			s.alive.Go(func() {
				s.fail(errExited)
				s.end()
				s.loop()
			})
		}
	}()
	for !s.leaves() {
		n, err := s.next()
		if n == 0 {
			s.endProbe() // no message is tried after all
		}
		if err != nil {
			return
		}
		if n > 0 {
			s.call(n)
			s.end()
		}
	}
	s.remove(s)
}

// add gives the slot one more message.
func (s *slot) add(t *task) {
	s.mu.Lock()
	s.tasks = append(s.tasks, *t)
	s.mu.Unlock()
}

// holdAll replaces the messages that the slot holds.
func (s *slot) holdAll(tasks []task) {
	s.mu.Lock()
	s.tasks = append(s.tasks[:0], tasks...)
	s.mu.Unlock()
}

// call calls the handler with the first n messages. The context that the handler gets ends after the timeout, or when
// the messages are lost.
func (s *slot) call(n int) {
	tasks, ctx := s.begin(n), s.working
	if s.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.timeout, ErrTimeout)
		defer cancel()
		call := s.calls
		defer time.AfterFunc(s.overdue(), func() { s.warn(call) }).Stop()
	}
	if s.cancelLost {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		s.setEndCall(cancel)
		defer s.setEndCall(nil)
		s.endIfLost() // endOnLoss passed this slot if the loss came before the call
	}
	s.handTo(ctx, tasks)
}

// handTo calls the handler, unless the message has reached the limit of crashes. Then the error of that limit is its
// result.
func (s *slot) handTo(ctx context.Context, tasks []task) {
	s.notifyHandling(tasks)
	if s.crashes != nil && len(tasks) == 1 { // a suspect is handled alone
		if err := s.crashes.limit(tasks[0].msg); err != nil {
			s.counts.crashed.Add(1)
			s.fail(err)
			return
		}
	}
	s.whole = s.handle(ctx, tasks, s.outcomes)
}

// fail makes err the result for all messages that the handler has.
func (s *slot) fail(err error) {
	for i := range s.outcomes {
		s.outcomes[i].err = err
	}
	s.whole = true
}

// begin notes that the handler has the first n messages, and returns them. Until the handler has returned, only msg and
// tries of these tasks may be read without mu.
func (s *slot) begin(n int) []task {
	s.outcomes = append(s.outcomes[:0], make([]outcome, n)...)
	s.pause = 0
	var since time.Duration
	if s.timeout > 0 || s.isTimed(s.calls+1) {
		since = s.now()
	}
	tasks := s.tasks[:n]
	s.mu.Lock()
	s.called, s.stage, s.since = n, handling, since
	s.calls++
	s.mu.Unlock()
	return tasks
}

// isSample reports whether to examine a call of the slot's handler closely: the first call, and then one in 64. To
// examine each call would cost too much.
func isSample(call int) bool { return call%64 == 1 }

// isTimed reports whether to measure how long a call of the handler takes: each call for observers, and samples for the
// pace.
func (s *slot) isTimed(call int) bool {
	return len(s.observers.handled) > 0 || s.finishBatches && isSample(call)
}

// end settles the handler's messages, or keeps them for another call.
func (s *slot) end() {
	tasks := s.takeBack()
	if s.returned != nil {
		s.returned() // before the messages are settled
	}
	took := s.examine(tasks)
	failed := s.readAll()
	if failed {
		s.reportFailures(tasks)
	}
	s.notifyHandled(tasks, s.outcomes, took)
	if failed || s.portion > 0 || s.outage != nil {
		s.decideAll(tasks)
	}
	switch {
	case len(tasks) > 1:
		s.settleAll(tasks, s.outcomes)
	case s.outcomes[0].verb != hold:
		s.settle(s.lasting, &tasks[0], &s.outcomes[0])
	}
	s.release()
}

// takeBack notes that the handler has returned, and returns its messages. If a message was redelivered while the
// handler had it, takeBack returns the newest delivery.
func (s *slot) takeBack() []task {
	s.mu.Lock()
	s.stage = settling
	for i := range s.tasks {
		s.tasks[i].takeNewer()
	}
	tasks := s.tasks[:s.called]
	s.mu.Unlock()
	return tasks
}

// examine returns how long the handler took, if the call is timed, and examines a sample.
func (s *slot) examine(tasks []task) (took time.Duration) {
	if s.isTimed(s.calls) {
		took = s.now() - s.since
		s.paced(took, len(tasks))
	}
	if isSample(s.calls) {
		s.warnOfSelfSettled(tasks)
	}
	return took
}

// readAll completes the outcomes by the handler's errors, and reports whether a message failed.
func (s *slot) readAll() (failed bool) {
	for i := range s.outcomes {
		o := &s.outcomes[i]
		err := o.err
		if err == nil {
			o.verb = ack
			continue
		}
		if s.classify != nil && !isCrash(err) {
			err = s.classify(err) // nil makes the message a success
		}
		*o = s.read(err)
		failed = failed || o.verb != ack
	}
	return failed
}

// release keeps messages that will be handled again, and those that were not handled yet.
func (s *slot) release() {
	if s.crashes != nil {
		s.crashes.ended(s.tasks[:s.called], s.outcomes)
	}
	s.mu.Lock()
	kept := 0
	for i := range s.tasks {
		if i >= s.called || s.outcomes[i].verb == hold {
			s.tasks[kept] = s.tasks[i]
			s.tasks[kept].waited = true
			kept++
		}
	}
	clear(s.tasks[kept:])
	s.tasks, s.called, s.stage = s.tasks[:kept], 0, waiting
	s.mu.Unlock()
}
