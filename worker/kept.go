package worker

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/pulsar-redelivery/redelivery"
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

// waitToGoOn waits until the slot may go on with what it has. In an outage it is its turn to try then, with one message. If nothing is to
// be tried any more, it leaves its messages to the broker, and returns an error.
func (s *slot) waitToGoOn() (probe bool, err error) {
	s.renewAll()
	if err = s.sleep(s.pause); err == nil {
		probe, err = s.waitForTurn()
	}
	if err != nil {
		s.leaveAll("it waited to be tried until the end")
	}
	return probe, err
}

// renewAll begins to renew the ack timeouts of what the slot has.
func (s *slot) renewAll() {
	for i := range s.tasks {
		_ = s.renew(&s.tasks[i]) // if it is not held any more, settling it will tell
	}
}

// leaveAll leaves what the slot has to the broker.
func (s *slot) leaveAll(why string) {
	for _, t := range s.tasks {
		s.leave(t, why, nil)
		s.forget(t)
	}
	s.set(s.tasks[:0], waiting)
}

// sleep waits for a while. Its error says that nothing is to be tried any more.
func (s *slot) sleep(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-s.taking.Done():
		return s.taking.Err()
	}
}

// waitForTurn waits for the end of an outage, or for the slot's turn to try. Nobody may have been receiving meanwhile, who would be told of a
// lost Consumer.
func (s *slot) waitForTurn() (probe bool, err error) {
	if s.outage == nil {
		_, err = s.valve.wait(s.taking)
	} else {
		probe, err = s.outage.wait()
	}
	if err != nil {
		return false, err
	}
	returned := false
	if probe {
		s.yield = sync.OnceFunc(func() { <-s.outage.probing })
		defer func() {
			if !returned { // the policy that Delivery asks called runtime.Goexit: another slot may try
				s.yield()
			}
		}()
	}
	if _, err = s.consumer.Delivery(s.tasks[0].msg); errors.Is(err, redelivery.ErrClosed) {
		s.lose(err)
	} else {
		err = nil
	}
	returned = true
	return probe, err
}

// keeps reports whether what failed is kept, to be tried again without being nacked.
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
		return t.counted().RedeliveryCount() > 0 || t.isLast(s.consumer)
	})
}
