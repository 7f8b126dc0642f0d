package worker

import (
	"context"
	"slices"
	"sync"
	"time"
)

// This file has what a slot keeps: messages in an outage, those of a batch that is halved, and those for local retries.

// limitProbe lets another slot try if this one takes long.
func (s *slot) limitProbe() *time.Timer {
	limit, yield := probeLimit, s.yield
	if s.timeout > 0 {
		limit = min(limit, s.overdue())
	}
	return time.AfterFunc(limit, func() {
		defer yield()
		s.outage.takesLong()
	})
}

// get returns the messages that the slot handles next: the rest of a halved batch, those of a local retry, those to try in an outage, or
// new ones. There may be none yet. An error says that no more will come.
func (s *slot) get() (tasks []task, probe bool, err error) {
	if s.outage != nil && s.outage.current() != nil {
		return s.nextToTry()
	}
	if tasks = s.tasks; len(tasks) > 0 {
		err = s.waitToGoOn()
	} else {
		tasks, err = s.takeLimited(tasks)
	}
	if err == nil && s.outage != nil && s.outage.current() != nil { // it began meanwhile
		s.set(tasks)
		return s.nextToTry()
	}
	return tasks, false, err
}

// nextToTry puts aside what the slot has. If that is nothing it waits for its turn to try a message, and returns that; at the end of the outage it
// returns nothing.
func (s *slot) nextToTry() (tasks []task, probe bool, err error) {
	if len(s.tasks) > 0 {
		s.renewAll()
		if !s.outage.putAside(s.tasks) {
			return s.tasks, false, s.waitToGoOn()
		}
		s.set(s.tasks[:0])
		return nil, false, nil // the slot may have lost its place
	}
	if probe, err = s.outage.wait(); err != nil || !probe {
		return nil, false, err
	}
	s.yield = sync.OnceFunc(func() { <-s.outage.probing })
	defer func() {
		if len(tasks) == 0 { // there is none, or something called runtime.Goexit: another slot may try
			s.yield()
		}
	}()
	t, ok, err := s.outage.pick()
	if ok && err == nil {
		tasks = append(s.tasks[:0], t)
	}
	return tasks, ok, err
}

// waitToGoOn waits until the slot may go on with what it has, paused or not. If nothing is to be handled any more, it leaves its messages to
// the broker, and returns an error.
func (s *slot) waitToGoOn() (err error) {
	s.renewAll()
	if err = sleep(s.taking, s.pause); err != nil {
		s.leaveOwn(untried)
	}
	return err
}

// renewAll begins to renew the ack timeouts of what the slot has.
func (s *slot) renewAll() {
	for i := range s.tasks {
		_ = s.renew(&s.tasks[i]) // if it is not held any more, settling it will tell
	}
}

// leaveOwn leaves what the slot has to the broker.
func (s *slot) leaveOwn(why string) {
	s.leaveAll(s.tasks, why)
	s.set(s.tasks[:0])
}

// untried is why a message is left that waited for its next try.
const untried = "the drain ended before its next try"

// leaveAll leaves messages to the broker.
func (r *run) leaveAll(tasks []task, why string) {
	for _, t := range tasks {
		r.leave(t, why, nil)
		r.forget(t)
	}
}

// sleep waits for a while, or until ctx is done, which is its error.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// keeps reports whether the slot tries failed messages again itself, without a nack.
func (s *slot) keeps(probe bool) bool {
	if probe {
		defer s.yield()
	}
	outcomes := s.outcomes
	if s.whole {
		outcomes = outcomes[:1] // one error, however many messages
	}
	if s.outage != nil {
		s.outage.sendAway(s.outcomes)
	}
	if s.outage != nil && s.outage.report(probe, s.tasks, outcomes) {
		s.size = 0
		return s.working.Err() == nil
	}
	if s.whole && s.mayHalve() {
		s.size = (len(s.outcomes) + 1) / 2
		return s.working.Err() == nil
	}
	s.size *= 2
	return false
}

// mayHalve reports whether a batch that failed as a whole is to be halved: it has a message that failed before, or may not fail again.
func (s *slot) mayHalve() bool {
	tasks := s.tasks[:len(s.outcomes)]
	return len(tasks) > 1 && s.outcomes[0].verb == nack && slices.ContainsFunc(tasks, func(t task) bool {
		return t.counted().RedeliveryCount() > 0 || t.isLast(s.consumer) || s.isTooOld(t)
	})
}
