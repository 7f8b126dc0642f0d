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
}

// slot is one of the places for what is handled at the same time. It takes a task, calls the handler and settles the task, all in
// one goroutine, so that a handler that does not return keeps its place.
type slot struct {
	*run
	errs []error // what the handler returned for each task

	mu       sync.Mutex // guards what follows, which only the slot changes
	tasks    []task     // none while the slot waits for some
	since    time.Time  // when the handler was called
	returned bool       // it has; the tasks are being settled
}

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

// turn handles what the slot gets next. It reports false if there is to be no more.
func (s *slot) turn() bool {
	tasks, err := s.take(s.tasks)
	if err != nil {
		return false
	}
	s.begin(tasks)
	defer s.end()
	s.call()
	return true
}

func (s *slot) begin(tasks []task) {
	s.errs = s.errs[:0]
	for range tasks {
		s.errs = append(s.errs, errExited)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks, s.since, s.returned = tasks, time.Now(), false
}

// call calls the handler.
func (s *slot) call() {
	ctx := s.working
	if s.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.timeout, ErrTimeout)
		defer cancel()
		since := s.since
		defer time.AfterFunc(s.timeout+patience, func() { s.warn(since) }).Stop()
	}
	for i := range s.tasks {
		switch t := &s.tasks[i]; {
		case s.timeout == 0:
			t.beat.stop()
		case t.beat == nil:
			t.beat = s.heartbeat(t.msg, s.since.Add(s.timeout))
		default:
			t.beat.endAt(s.since.Add(s.timeout))
		}
	}
	s.tellHandling(s.tasks)
	s.handle(ctx, s.tasks, s.errs)
}

// end settles the tasks.
func (s *slot) end() {
	s.mu.Lock()
	s.returned = true
	s.mu.Unlock()
	s.classifyAll(s.errs)
	s.tellHandled(s.tasks, s.errs, time.Since(s.since))
	if len(s.tasks) == 1 {
		s.settle(s.tasks[0].msg, s.judge(s.tasks[0].msg, s.errs[0]))
	} else {
		s.settleBatch(s.tasks, s.errs)
	}
	for _, t := range s.tasks {
		t.beat.stop()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.tasks)
	s.tasks = s.tasks[:0]
}

// handling reports whether a handler is at work. The caller holds mu.
func (s *slot) handling() bool { return len(s.tasks) > 0 && !s.returned }

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
	if s.handling() && s.since.Equal(since) {
		s.logger.LogAttrs(s.settling, slog.LevelError, "worker: a handler is stuck, and keeps its place", about(s.tasks[0].msg)...)
	}
}
