package worker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// task is a message that was taken and is not settled yet.
type task struct {
	msg  pulsar.Message
	beat *heartbeat // nil for none
	lane *lane      // of its key; nil without key order, and without a key
}

// slot is one of the places for what is handled at the same time. It takes a task, calls the handler and settles the task, all in
// one goroutine, so that a handler that does not return keeps its place.
type slot struct {
	*run
	errs     []error   // what the handler returned for each task
	outcomes []outcome // what becomes of it

	mu    sync.Mutex // guards what follows, which only the slot changes
	tasks []task     // none while the slot waits for some
	stage stage
	since time.Time // when the handler was called
}

type stage int

const (
	waiting  stage = iota
	handling       // the handler is at work
	settling
)

func (s *slot) loop() {
	exited := true
	defer func() {
		if exited { // by runtime.Goexit in the handler
			s.alive.Go(s.loop)
		}
	}()
	for s.turn() {
	}
	exited = false
}

// turn handles what the slot kept in an outage, or gets next. It reports false if there is to be no more.
func (s *slot) turn() bool {
	kept := len(s.tasks) > 0
	if !kept {
		tasks, err := s.take(s.tasks)
		if err != nil {
			return false
		}
		s.set(tasks, waiting)
	}
	n, probe := len(s.tasks), false
	if s.outage != nil && (kept || s.outage.current() != nil) {
		for i := range s.tasks {
			_ = s.renew(&s.tasks[i]) // if it is not held any more, settling it will tell
		}
		var err error
		if probe, err = s.outage.wait(); err != nil {
			s.abandon()
			return false
		}
		if probe {
			n = 1
		}
	}
	defer s.end(n, probe)
	s.call(s.tasks[:n])
	return true
}

func (s *slot) set(tasks []task, stage stage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks, s.stage, s.since = tasks, stage, time.Now()
}

// call calls the handler.
func (s *slot) call(tasks []task) {
	s.errs = s.errs[:0]
	for range tasks {
		s.errs = append(s.errs, errExited)
	}
	s.set(s.tasks, handling)
	since := s.since
	ctx := s.working
	if s.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.timeout, ErrTimeout)
		defer cancel()
		defer time.AfterFunc(s.timeout+patience, func() { s.warn(since) }).Stop()
	}
	for i := range tasks {
		switch t := &tasks[i]; {
		case s.timeout == 0:
			t.beat.stop()
		case t.beat == nil:
			t.beat = s.heartbeat(t.msg, since.Add(s.timeout))
		default:
			t.beat.endAt(since.Add(s.timeout))
		}
	}
	s.handle(ctx, tasks, s.errs)
}

// end settles the first n tasks, which the handler was called with.
func (s *slot) end(n int, probe bool) {
	s.set(s.tasks, settling)
	s.outcomes = s.outcomes[:0]
	for _, err := range s.errs {
		s.outcomes = append(s.outcomes, s.verdict(err))
	}
	hold := s.outage != nil && s.outage.report(probe, s.outcomes) && s.working.Err() == nil
	for i, o := range s.outcomes {
		if hold && o.retries() {
			s.outcomes[i].verb = held
		} else {
			s.outcomes[i] = s.judge(s.tasks[i].msg, o)
		}
	}
	s.ackTogether(s.tasks[:n], s.outcomes)
	for i, o := range s.outcomes {
		s.settle(s.tasks[i], o)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := s.tasks[:0]
	for i, t := range s.tasks {
		if i >= n || s.outcomes[i].verb == held {
			rest = append(rest, t)
		}
	}
	clear(s.tasks[len(rest):])
	s.tasks, s.stage = rest, waiting
}

// abandon leaves what was kept in an outage to the broker.
func (s *slot) abandon() {
	for _, t := range s.tasks {
		s.leave(t.msg, "an outage lasted until the drain", nil)
		s.forget(t)
	}
	s.set(s.tasks[:0], waiting)
}

// names says which messages they are. The caller holds mu.
func (s *slot) names() string {
	name := fmt.Sprintf("message %v", s.tasks[0].msg.ID())
	if n := len(s.tasks) - 1; n > 0 {
		name += fmt.Sprintf(" and %d more", n)
	}
	return name
}

// warn logs that a handler is stuck, if the one that was called at a time still is at work.
func (s *slot) warn(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stage == handling && s.since.Equal(since) {
		s.logger.LogAttrs(s.settling, slog.LevelError, "worker: a handler is stuck, and keeps its place", about(s.tasks[0].msg)...)
	}
}
