package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pulsar-redelivery/redelivery/attempts"
)

// slot is one of the places where messages are handled at the same time. It takes messages, calls the handler, and
// settles them, all in one goroutine, so that a handler that does not return keeps its place.
type slot struct {
	*run
	name     string // of its goroutine, as stacks show it
	turns    int    // how often the handler was called
	portion  int    // how many messages of a halved batch the handler gets next; 0 for all
	errs     []error
	outcomes []outcome
	whole    bool          // the batch failed as a whole
	pause    time.Duration // before a local retry
	probe    *probe        // the try of a message in an outage; nil for none
	returned func()        // notes for the crash limit that the handler has returned; nil without a limit

	mu       sync.Mutex // guards the fields below, which only the slot changes, except where a comment says otherwise
	tasks    []task     // messages that the slot holds; a slot that takes a redelivery of a task sets the task's newer
	called   int        // how many of tasks, the first ones, the handler has or had
	stage    stage
	since    time.Duration           // when the handler was called, by run.now
	endCall  context.CancelCauseFunc // ends the handler's context; nil without WithCancelLost
	replaced bool                    // another slot has its place, since its handler did not return; losePlace sets it
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
				s.end()
				s.loop()
			})
		}
	}()
	for !s.leaves() {
		n, err := s.next()
		if err != nil {
			return
		}
		if n > 0 {
			s.call(n)
			s.end()
		}
	}
}

// hold replaces the messages that the slot holds.
func (s *slot) hold(tasks ...task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks = append(s.tasks[:0], tasks...)
}

// call calls the handler with the first n messages.
func (s *slot) call(n int) {
	tasks := s.begin(n)
	ctx := s.working
	if s.timeout > 0 {
		since := s.since
		withTimeout, cancel := context.WithTimeoutCause(ctx, s.timeout, ErrTimeout)
		defer cancel()
		defer time.AfterFunc(s.overdue(), func() { s.warn(since) }).Stop()
		ctx = withTimeout
	}
	if s.cancelLost {
		untilLost, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		s.setEndCall(cancel)
		defer s.setEndCall(nil)
		ctx = untilLost
	}
	s.notifyHandling(tasks)
	if n == 1 && s.crashes.givesUp(tasks[0].msg) { // a suspect is handled alone
		s.counts.crashed.Add(1)
		s.errs[0] = s.crashes.limit(tasks[0].msg)
		return
	}
	s.whole = s.handle(ctx, tasks, s.errs)
}

// begin notes that the handler has the first n messages, and returns them. Until the handler has returned, only msg and
// tries of these tasks are read without mu.
func (s *slot) begin(n int) []task {
	since := s.now()
	s.setAckTimeouts(s.tasks[:n], since)
	s.errs, s.whole = s.errs[:0], true
	for range n {
		s.errs = append(s.errs, errExited)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.called, s.stage, s.since = n, handling, since
	for i := range s.tasks[:n] {
		s.tasks[i].paid = false
	}
	return s.tasks[:n]
}

// setAckTimeouts renews the ack timeouts of tasks, whose handler is called at since. With WithTimeout it renews them
// until the handler's timeout. Without WithTimeout, it ends the heartbeats of messages that waited, and renews their
// ack timeouts once more.
func (s *slot) setAckTimeouts(tasks []task, since time.Duration) {
	var until time.Time
	if s.timeout > 0 {
		until = s.began.Add(since).Add(s.timeout)
	}
	for i := range tasks {
		switch t := &tasks[i]; {
		case s.timeout > 0 && t.beat == nil:
			t.beat = s.heartbeat(t.msg, until)
		case s.timeout > 0:
			t.beat.endAt(until)
		case t.beat != nil: // the message waited; the handler gets its whole ack timeout
			t.beat.stop()
			_ = s.consumer.InProgress(t.msg) // settling will return this error, too
		}
	}
}

// end settles the handler's messages, or keeps them for another call.
func (s *slot) end() {
	tasks := s.takeBack()
	if s.returned != nil {
		s.returned() // before the messages are settled
	}
	s.warnOfSelfSettled(tasks)
	took := s.measure(len(tasks))
	s.readAll()
	s.notifyHandled(tasks, s.outcomes, took)
	s.decideAll(tasks)
	switch {
	case len(tasks) > 1:
		s.settleAll(tasks, s.outcomes)
	case s.outcomes[0].verb != hold:
		s.settle(s.lasting, tasks[0], s.outcomes[0])
	}
	s.release()
}

// takeBack notes that the handler has returned, and returns its messages. If a message was redelivered while the
// handler had it, takeBack returns the newest delivery.
func (s *slot) takeBack() []task {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stage = settling
	for i := range s.tasks {
		s.tasks[i].takeNewer()
	}
	return s.tasks[:s.called]
}

// measure returns how long the handler took. Reading a clock costs more than all else that a slot does, so measure
// reads it only for observers, and now and then for the pace.
func (s *slot) measure(n int) (took time.Duration) {
	s.turns++
	if len(s.observers.handled) > 0 || s.finishBatches && s.turns%16 == 1 {
		took = s.now() - s.since
		s.paced(took, n)
	}
	return took
}

// readAll makes outcomes of the handler's results.
func (s *slot) readAll() {
	s.outcomes = s.outcomes[:0]
	failed := false
	for _, err := range s.errs {
		if err != nil && s.classify != nil && !isCrash(err) {
			err = s.classify(err)
		}
		if err == nil {
			s.outcomes = append(s.outcomes, outcome{verb: ack})
			continue
		}
		failed = true
		s.outcomes = append(s.outcomes, s.read(err))
	}
	if failed {
		s.logFailures(s.tasks, s.outcomes)
		s.pauseFor(s.outcomes)
	}
}

// decideAll makes the outcomes final.
func (s *slot) decideAll(tasks []task) {
	s.retryLocally(tasks)
	stays := s.stay(tasks) && s.working.Err() == nil
	for i := range tasks {
		t, o := &tasks[i], &s.outcomes[i]
		if o.verb == ack || o.verb == hold {
			continue
		}
		a := attempt{stays: stays && !t.gone && !o.away, drained: s.working.Err() != nil}
		if o.fails() && !a.stays {
			a.old, a.last = s.pastAge(t), t.isLast(s.consumer)
		}
		*o = o.decide(a)
		t.failed = t.failed || o.verb == hold
	}
}

// stay reports whether failed messages are tried again without a nack: in an outage, or if their batch is halved.
func (s *slot) stay(tasks []task) bool {
	outcomes := s.outcomes
	if s.whole {
		outcomes = outcomes[:1] // one error, however many messages
	}
	keeps := false
	if s.outage != nil {
		s.outage.markAway(s.outcomes)
		keeps = s.outage.report(s.probe != nil, tasks, outcomes)
	}
	s.endProbe()
	switch {
	case keeps:
		s.portion = 0
	case s.whole && s.mayHalve(tasks):
		s.portion = (len(tasks) + 1) / 2
		return true
	default:
		s.portion *= 2
	}
	return keeps
}

// pastAge returns the age of WithMaxAge if the message is older than that, so that it is not tried again; else 0.
func (s *slot) pastAge(t *task) time.Duration {
	if s.maxAge > 0 && t.age(s.consumer) > s.maxAge {
		return s.maxAge
	}
	return 0
}

// mayHalve reports whether to halve a batch that failed as a whole: one of its messages failed before, has its last
// delivery, or is too old to be tried again.
func (s *slot) mayHalve(tasks []task) bool {
	return len(tasks) > 1 && s.outcomes[0].verb == nack && slices.ContainsFunc(tasks, func(t task) bool {
		return t.count() > 0 || t.isLast(s.consumer) || s.pastAge(&t) > 0
	})
}

// release keeps messages that will be handled again, and those that were not handled yet.
func (s *slot) release() {
	for i, o := range s.outcomes {
		if o.verb == hold && s.crashes != nil {
			s.crashes.log.Ended(attempts.KeyOf(s.tasks[i].msg))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.tasks[:0]
	for i, t := range s.tasks {
		if i >= s.called || s.outcomes[i].verb == hold {
			t.waited = true
			kept = append(kept, t)
		}
	}
	clear(s.tasks[len(kept):])
	s.tasks, s.called, s.stage = kept, 0, waiting
	if len(kept) == 0 {
		s.portion = 0
	}
}

// leaveOwn leaves the slot's messages to the broker.
func (s *slot) leaveOwn(why string) {
	s.leaveAll(s.tasks, why)
	s.hold()
}

// renewAll begins to renew the ack timeouts of the slot's messages.
func (s *slot) renewAll() {
	for i := range s.tasks {
		_ = s.renew(&s.tasks[i]) // settling will return this error, too
	}
}
