package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/pulsar-redelivery/redelivery"
)

// drain waits for running handlers: until the drain timeout, and then for the time patience after their contexts have
// ended. It leaves waiting messages to the broker, and returns the error of Run.
func (r *run) drain() error {
	r.drainEnds() // the first call starts the drain timeout
	before := r.counts.finished()
	n, _ := r.inFlight()
	r.logger.Info("worker: draining", append(r.who(), "in_flight", n+r.outage.kept(), "timeout", r.drainTimeout,
		"arriving", r.consumer.Stats().Arriving)...)
	r.waitForHandlers()
	r.cancel(nil)
	r.lanes.abandon()
	r.outage.abandon()
	r.pauser.end()
	r.notifyAsked()
	r.notifyPausedFor()
	stuck := r.unended()
	r.logStopped(r.counts.finished()-before, len(stuck))
	r.end()
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(append(stuck, r.lost)...)
}

// waitForHandlers waits until all slots have ended, but at most for the drain timeout and patience.
func (r *run) waitForHandlers() {
	ended := make(chan struct{})
	go func() {
		r.alive.Wait()
		close(ended)
	}()
	if within(r.drainTimeout, ended) {
		return
	}
	n, _ := r.inFlight()
	r.logger.Warn("worker: the drain timeout is over, the handlers' contexts end", append(r.who(), "in_flight", n)...)
	r.cancel(ErrDrainTimeout)
	within(patience, ended)
}

// within waits for done, but no longer than d.
func within(d time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// unended returns an error for each slot that did not end.
func (r *run) unended() []error {
	var errs []error
	for _, s := range r.allSlots() {
		s.mu.Lock()
		var stuck []slog.Attr
		switch s.stage {
		case handling:
			if r.timeout == 0 || r.now()-s.since < r.overdue() { // else slot.warn has logged it
				stuck = about(s.tasks[0].counted())
			}
			errs = append(errs, fmt.Errorf("worker: a handler did not return within %v of the end of its context: %v",
				patience, s.names()))
		case settling:
			errs = append(errs, fmt.Errorf("worker: handled, but not settled yet: %v", s.names()))
		default: // waiting
		}
		name := s.name
		s.mu.Unlock()
		if stuck != nil {
			r.logStuck(name, stuck)
		}
	}
	return errs
}

// logStopped logs how many messages were finished, in all and by the drain, and how many come again: those left to the
// broker, those that wait for redelivery, and finished ones of unfinished batches. If finished messages come again, the
// line is a warning.
func (r *run) logStopped(drained uint64, stuck int) {
	r.repeats.end() // so that this line is the last
	stats := r.consumer.Stats()
	attrs := append(r.who(), "finished", r.counts.finished(), "drained", drained, "left", r.counts.left.Load(),
		"waiting", stats.Waiting, "stuck", stuck, "unfinished", stats.Unfinished)
	if stats.Unfinished == 0 {
		r.logger.Info("worker: stopped", attrs...)
		return
	}
	msg := "worker: stopped; finished messages may come again"
	why := "the broker may keep no batch-index acknowledgements"
	remedy := "acknowledgmentAtBatchIndexLevelEnabled=true in broker.conf"
	switch stats.IndexAcks {
	case redelivery.IndexAcksIgnored:
		why = "the broker keeps no batch-index acknowledgements, or lost them in an unload"
	case redelivery.IndexAcksOff:
		msg = "worker: stopped; finished messages come again"
		why = "the consumer sends no batch-index acknowledgements"
		remedy += ", then EnableBatchIndexAcknowledgment: true in pulsar.ConsumerOptions"
	default: // unknown
	}
	r.logger.Warn(msg, append(attrs, "why", why+", and other messages of their batches are not finished",
		"remedy", remedy)...)
}
