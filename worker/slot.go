package worker

import (
	"context"
	"sync"
	"time"

	"github.com/pulsar-redelivery/redelivery/attempts"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
)

// slot is one of the places for what is handled at the same time. It takes a task, calls the handler and settles the task, all in
// one goroutine, so that a handler that does not return keeps its place.
type slot struct {
	*run
	name     string        // of its goroutine, as stacks have it
	errs     []error       // what the handler returned for each task
	outcomes []outcome     // what becomes of it
	turns    int           // how often the handler was called
	whole    bool          // the handler failed all of a batch with one error
	yield    func()        // lets the next slot try, in an outage; only once
	size     int           // how many of a halved batch the handler gets next; 0 for all
	pause    time.Duration // before a local retry
	finishes bool          // it takes what is left of a batch that was begun, in a drain

	mu      sync.Mutex // guards what follows, which only the slot changes
	tasks   []task     // none while the slot waits for some
	with    int        // how many of them the handler has, the first ones
	stage   stage
	since   time.Duration           // when the handler was called, by run.now
	again   map[int]task            // tasks that came again meanwhile, by their place in tasks
	gone    map[int]bool            // places of tasks that came again and were settled meanwhile, since the handler was stuck
	lost    bool                    // another slot has its place, since the handler did not return
	endCall context.CancelCauseFunc // ends the handler's context; nil without WithCancelLost
}

type stage int

const (
	waiting  stage = iota
	handling       // the handler is at work
	settling
)

func (s *slot) loop() {
	s.mu.Lock()
	s.name = goroutine()
	s.mu.Unlock()
	exited := true
	defer func() {
		if exited { // by runtime.Goexit in the handler
			s.alive.Go(s.loop)
		}
	}()
	for !s.leaves() && s.turn() {
		continue
	}
	exited = false
}

// turn gets messages and handles them. It reports false if there are to be no more.
func (s *slot) turn() bool {
	kept := len(s.tasks) > 0
	tasks, probe, err := s.get()
	if err != nil || len(tasks) == 0 {
		return err == nil
	}
	kept = kept || tasks[0].aside
	n := len(tasks)
	switch {
	case probe:
		n = 1
		defer s.yield() // also if it is not tried after all
		defer s.limitProbe().Stop()
	case s.size > 0:
		n = min(n, s.size)
	}
	if kept || s.crashes != nil {
		s.set(tasks)
	}
	if kept && s.waitForRate(tasks[:n]) != nil {
		return false
	}
	handled := func() {}
	if s.crashes != nil {
		n = s.crashes.share(tasks[:n])
		if handled, err = s.crashes.admit(tasks[:n]); err != nil {
			s.leaveOwn(untried)
			return false
		}
	}
	if s.limiter != nil || s.crashes != nil || !probe && (kept || s.batch != (Batch{})) { // it waited
		if tasks, n, err = s.stillOwn(tasks, n); n == 0 {
			handled()
			return err == nil
		}
	}
	s.begins(tasks, n)
	defer s.end(n, probe)
	defer handled() // before it is settled
	s.call(tasks[:n])
	return true
}

// set notes what the slot has, and that its handler has nothing of it.
func (s *slot) set(tasks []task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks, s.stage = tasks, waiting
}

// begins notes that the handler gets the first n tasks of those that the slot has.
func (s *slot) begins(tasks []task, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks, s.with, s.stage = tasks, n, handling
	for i := range tasks[:n] {
		tasks[i].paid = false
	}
	s.since = s.now()
}

// call calls the handler.
func (s *slot) call(tasks []task) {
	s.errs, s.whole = s.errs[:0], true
	for range tasks {
		s.errs = append(s.errs, errExited)
	}
	ctx, since := s.working, s.since
	if s.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.timeout, ErrTimeout)
		defer cancel()
		defer time.AfterFunc(s.overdue(), func() { s.warn(since) }).Stop()
	}
	for i := range tasks {
		switch t := &tasks[i]; {
		case s.timeout == 0 && t.beat != nil: // it waited, and the handler is to have its whole ack timeout
			t.beat.stop()
			_ = s.consumer.InProgress(t.msg) // if it is not held any more, settling it will tell
		case s.timeout == 0:
		case t.beat == nil:
			t.beat = s.heartbeat(t.msg, s.began.Add(since).Add(s.timeout))
		default:
			t.beat.endAt(s.began.Add(since).Add(s.timeout))
		}
	}
	if s.cancelLost {
		var done context.CancelFunc
		ctx, done = s.whileOurs(ctx)
		defer done()
	}
	s.tellHandling(tasks)
	s.whole = s.handleOthers(ctx, tasks, s.errs)
}

// end settles the first n tasks, with which the handler was called. Its steps are deferred, so that the others are done if the
// classifier, an observer, a policy or an interceptor calls runtime.Goexit in one.
func (s *slot) end(n int, probe bool) {
	s.returned()
	s.warnOfSelfSettled(s.tasks[:n])
	var took time.Duration // a clock costs more than all else that a slot does: it is read for those who ask, and now and then for the pace
	if s.turns++; len(s.observers.handled) > 0 || s.finishBatches && s.turns%16 == 1 {
		took = s.now() - s.since
		s.paced(took, n)
	}
	defer s.release()
	if len(s.tasks) == 1 && s.errs[0] == nil && s.outage == nil && len(s.observers.handled) == 0 { // as most are; the steps below do no more
		s.outcomes = append(s.outcomes[:0], outcome{verb: ack})
		s.settleOne(s.lasting, 0)
		return
	}
	s.outcomes = s.outcomes[:0]
	for range n {
		s.outcomes = append(s.outcomes, outcome{err: errExited})
	}
	defer s.settleAll(probe)
	defer s.tellHandled(s.tasks[:n], s.outcomes, took)
	defer s.decide()
	s.classifyAll(s.errs[:n])
}

// decide makes outcomes of what the handler returned.
func (s *slot) decide() {
	for i := range s.outcomes {
		s.outcomes[i] = s.outcomeOf(s.errs[i])
	}
	s.logFailures(s.tasks, s.outcomes)
	s.pauseFor(s.errs)
}

// settleAll settles what has an outcome, or keeps it.
func (s *slot) settleAll(probe bool) {
	s.retryHere(probe)
	keep := s.keeps(probe)
	for i := range s.outcomes {
		if o := &s.outcomes[i]; keep && o.retries() && !o.away && !s.isGone(i) {
			o.verb, s.tasks[i].kept = held, true
		} else {
			s.judge(&s.tasks[i], o)
		}
	}
	if len(s.outcomes) > 1 {
		s.ackTogether(s.tasks[:len(s.outcomes)], s.outcomes)
		for i, o := range s.outcomes {
			if o.verb != acked { // it waits for the others, which may take long
				_ = s.renew(&s.tasks[i]) // if it is not held any more, settling it will tell
			}
		}
	}
	s.settleEach()
}

// settleEach settles what is not held.
func (s *slot) settleEach() {
	if len(s.outcomes) > 1 {
		s.settleBatch()
		return
	}
	for i, o := range s.outcomes {
		if o.verb != held {
			s.settleOne(s.lasting, i)
		}
	}
}

func (s *slot) settleOne(ctx context.Context, i int) {
	s.settle(ctx, s.tasks[i], s.outcomes[i])
	s.outcomes[i].verb = done
}

// settleBatch is settleEach of many. Their dead letters begin to be published in their order, as long as that does not take long, and nobody
// waits for the answer to the one before: all of them could take minutes.
func (s *slot) settleBatch() {
	inOrder, cancel := context.WithTimeout(s.lasting, patience)
	defer cancel()
	var letters sync.WaitGroup
	defer letters.Wait()
	room := make(chan struct{}, maxLetters)
	for i, o := range s.outcomes {
		switch {
		case o.verb == held:
		case s.mayBeLetter(s.tasks[i], o):
			room <- struct{}{}
			begun := make(chan struct{})
			tell := sync.OnceFunc(func() { close(begun) })
			letters.Go(func() {
				defer func() { <-room }()
				defer tell()
				s.settleOne(publishing.WhenBegun(s.lasting, tell), i)
			})
			select {
			case <-begun:
			case <-inOrder.Done():
			}
		default:
			s.settleOne(s.lasting, i)
		}
	}
}

// release keeps what the slot is to try again, and makes room for what it takes next.
func (s *slot) release() {
	for i := range s.outcomes {
		switch t, o := s.tasks[i], &s.outcomes[i]; {
		case o.verb == done:
		case o.verb != held: // its key does not go on, so that nothing overtakes it
			t.beat.stop()
			s.leave(t, "runtime.Goexit was called while it was settled", o.err)
		case s.crashes != nil:
			s.crashes.log.Ended(attempts.KeyOf(t.msg))
		}
	}
	for i := len(s.outcomes); i < len(s.tasks); i++ {
		if s.isGone(i) {
			s.forget(s.tasks[i])
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.tasks[:0]
	for i := range s.tasks {
		if i >= len(s.outcomes) && !s.gone[i] || i < len(s.outcomes) && s.outcomes[i].verb == held {
			kept = append(kept, s.tasks[i])
		}
	}
	s.gone = nil
	clear(s.tasks[len(kept):])
	if len(kept) == 0 {
		s.size = 0
	}
	s.tasks, s.stage = kept, waiting
}
