package worker

import (
	"context"
	"slices"
	"time"

	"github.com/pulsar-redelivery/redelivery/attempts"
	"github.com/pulsar-redelivery/redelivery/internal/outages"
)

// This file tries messages in an outage, one at a time: it waits for the pause, looks ahead at the next messages, and
// chooses one of them.

// takeProbe waits until the slot may try a message, and gives the slot that message. It gives the slot none if the
// outage ends first. Until the try ends or takes long, no other message is tried.
func (s *slot) takeProbe() error {
	mine, err := s.outage.wait()
	if err != nil || !mine {
		return err
	}
	t, ok, err := s.outage.pick()
	if err != nil || !ok {
		s.outage.probing.unlock()
		return err
	}
	limit := probeLimit
	if s.timeout > 0 {
		limit = min(limit, s.overdue())
	}
	s.probe = s.outage.probing.unlockWithin(limit, s.outage.takesLong)
	s.add(&t)
	return s.waitForRate()
}

// endProbe lets another slot try a message.
func (s *slot) endProbe() {
	if s.probe != nil {
		s.probe()
		s.probe = nil
	}
}

// wait waits until the outage is over or the caller may try a message. In the latter case mine is true, and the caller
// has the turn probing. An error means that no more messages are tried.
func (o *outage) wait() (mine bool, err error) {
	defer o.resting()()
	for {
		over := o.current()
		if over == nil {
			return false, nil
		}
		select {
		case o.probing <- struct{}{}:
		case <-over:
			continue
		case <-o.taking.Done():
			return false, o.taking.Err()
		}
		if o.current() == over && o.waitToTry(over) == nil && o.current() == over {
			// it is the same outage: a new one would begin with a pause of its own
			return true, nil
		}
		o.probing.unlock()
	}
}

// waitToTry waits until the pause before the next try or the outage is over, and then until the Worker is not paused.
func (o *outage) waitToTry(over chan struct{}) error {
	pause := o.pause.Next(o.tries())
	o.mu.Lock()
	pause = o.state.Wait(pause)
	o.mu.Unlock()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	o.giveBackAtRest()
	select {
	case <-timer.C:
	case <-over:
	case <-o.taking.Done():
	}
	_, err := o.pauser.wait(o.taking, o.giveBackAtRest)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.state.Try()
	return err
}

// takesLong notes that a probe takes long, so that another message is tried before the probe has ended.
func (o *outage) takesLong() {
	o.mu.Lock()
	o.state.TakesLong()
	o.mu.Unlock()
	o.logger.Warn("worker: a handler takes long during the outage: other messages are tried, too", o.who()...)
}

// pick returns the message to try next, and false if there is none yet. The caller has the turn.
func (o *outage) pick() (t task, ok bool, err error) {
	if err = o.lookAhead(); err != nil {
		return t, false, err
	}
	if o.pauser.isPaused() || o.taking.Err() != nil {
		return t, false, o.taking.Err()
	}
	for t, ok = o.choose(); ok && !o.mayBegin(t); {
		t, ok = o.choose()
	}
	return t, ok, nil
}

// choose takes the message that is tried next out of aside. It reports false if aside has none or the outage is over.
func (o *outage) choose() (t task, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	next := outages.Next(o.aside, o.probes)
	if next < 0 || o.over == nil {
		return t, false
	}
	t = o.aside[next]
	o.aside = slices.Delete(o.aside, next, next+1)
	return t, true
}

// probes returns how often a message failed as a probe in this outage, or -1 if it never failed. The caller holds mu.
func (o *outage) probes(t task) int {
	return o.state.Probes(attempts.KeyOf(t.msg), t.failed || t.count() > 0)
}

// lookAhead puts the next messages aside, to choose from them.
func (o *outage) lookAhead() error {
	open, err := o.pauser.wait(o.taking, o.resting)
	if err != nil {
		return err
	}
	o.mu.Lock()
	n := o.state.Looks()
	o.mu.Unlock()
	fresh, more := false, true
	for looks := 0; more && n > 0 && looks < outages.Most; looks++ {
		fresh, more, err = o.look(open)
		if err != nil {
			return err
		}
		if fresh {
			n--
		}
	}
	return nil
}

// look receives a message and puts it aside. It reports whether the message is fresh (has not failed yet), and whether
// to look at more. If there is no message to try, look waits for one.
func (o *outage) look(open context.Context) (fresh, more bool, err error) {
	ctx := open
	if n := o.kept(); n >= outages.Most || n > 0 && !o.hasRoom() && !o.givesBack() {
		return false, false, nil
	} else if n > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(open, takingTime)
		defer cancel()
	}
	t, err := o.receive(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return false, false, nil
	case err != nil:
		return false, false, err
	}
	t.waited = true
	o.mu.Lock()
	o.aside = append(o.aside, t)
	fresh = o.probes(t) < 0
	if o.over == nil { // the outage is over: the next slot that takes messages takes this message first
		o.pauser.interrupt()
	}
	o.mu.Unlock()
	o.unfit = t.msg
	// Messages that failed must not keep the Worker from reaching fresh ones.
	return fresh, o.hasRoom() || !fresh && o.givesBack(), nil
}

// hasRoom reports whether the Consumer's memory limit has room for the message that look received last. It is true if
// that message is settled. The caller has the turn.
func (o *outage) hasRoom() bool {
	for shed := false; o.unfit != nil; shed = true {
		if o.fits(o.unfit) {
			o.unfit = nil
		} else if shed || !o.shed() {
			return false
		}
	}
	return true
}

// shed snoozes the failed messages until the next try, so that only the Consumer keeps them, and reports whether that
// may make room. If no message is fresh, it does not snooze the failed message that is tried next. If the Consumer can
// give messages back, shed does nothing, since the broker would count the next delivery. With key order it does nothing
// either, since failed messages must stay in the Worker; there, only messages that fail too often as probes make room.
func (o *outage) shed() bool {
	if o.lanes != nil || !o.neverGivesBack() {
		return false
	}
	tasks, pause := o.takeFailed()
	for _, t := range tasks {
		o.forget(&t)
		_ = o.consumer.Snooze(t.msg, pause) // after an error the broker delivers it again
	}
	return true
}

// takeFailed takes the messages that shed snoozes out of aside, and returns the delay of the snooze.
func (o *outage) takeFailed() (failed []task, pause time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.aside = slices.DeleteFunc(o.aside, func(t task) bool {
		if o.probes(t) < 0 {
			return false
		}
		failed = append(failed, t)
		return true
	})
	if next := outages.Next(failed, o.probes); len(o.aside) == 0 && next >= 0 {
		o.aside, failed = append(o.aside, failed[next]), slices.Delete(failed, next, next+1)
	}
	if o.probes(task{msg: o.unfit}) >= 0 {
		o.unfit = nil
	}
	return failed, max(o.state.Pause(), outages.ShortPause)
}

// givesBack reports whether the messages put aside will probably go back to the broker before the next try.
func (o *outage) givesBack() bool {
	o.mu.Lock()
	long := o.state.Pause() >= outages.ShortPause
	o.mu.Unlock()
	return long && o.lanes == nil && !o.neverGivesBack()
}
