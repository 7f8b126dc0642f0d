package worker

import (
	"slices"
	"time"
)

// In this file, a slot decides what becomes of its messages after a failure, after a call with a part of a halved
// batch, and, with WithPauseOnFailure, after any call.

// reportFailures logs the failures, and begins the pauses that the handler asked for.
func (s *slot) reportFailures(tasks []task) {
	if !s.whole || !s.mayHalve(tasks) { // else the halves are logged if they fail
		s.logFailures(tasks, s.outcomes)
	}
	s.pauseFor(s.outcomes)
}

// decideAll makes the outcomes final.
func (s *slot) decideAll(tasks []task) {
	s.retryLocally(tasks)
	stays := s.stay(tasks) && s.working.Err() == nil
	for i := range tasks {
		t, o := &tasks[i], &s.outcomes[i]
		if o.verb == ack {
			continue
		}
		_ = s.consumer.InProgress(t.msg) // settling may take long; it will return this error, too
		if o.verb == hold {
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

// stay reports whether failed messages are tried again without a nack: because there is an outage, or because their
// batch is halved.
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

// pastAge returns the limit of WithMaxAge if the message is older than that, so that it is not tried again; otherwise
// 0.
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
