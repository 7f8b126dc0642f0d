package worker

import (
	"errors"
	"fmt"
	"time"
)

// PauseFor returns an error that snoozes the message for d, like Snooze, and makes the Worker take no messages for d: the other side says that
// it wants no calls meanwhile, as an HTTP server does by 429 with Retry-After. Neither counts as an attempt. Messages that handlers have already are
// handled. If several handlers return it, the longest pause counts. A drain ends the pause. Unlike in a Pause, prefetched messages stay with
// the Consumer. The error has the text of err and wraps it, and may itself be wrapped; IsSnooze is true for it. A negative d counts as 0.
func PauseFor(d time.Duration, err error) error {
	return &pauseForError{snoozeError{max(0, d)}, orUnknown(err)}
}

type pauseForError struct {
	snooze snoozeError
	err    error
}

func (e *pauseForError) Error() string {
	return fmt.Sprintf("paused for %v: %v", e.snooze.delay, e.err)
}
func (e *pauseForError) Unwrap() []error { return []error{&e.snooze, e.err} }

// pauseIn returns the PauseFor in err, or nil.
func pauseIn(err error) (found *pauseForError) {
	errors.As(err, &found)
	return found
}

// pauseFor begins the pauses that handlers asked for. In a drain there are none.
func (r *run) pauseFor(outcomes []outcome) {
	for _, o := range outcomes {
		if o.pause == nil || o.pause.snooze.delay == 0 || r.taking.Err() != nil {
			continue
		}
		if r.valve.shutFor(o.pause.snooze.delay, r.notifyPausedFor) && r.repeats.first("pause", nil) {
			_, attr := r.describe(o.pause.err)
			r.logger.Warn("worker: a handler asked for a pause: no messages are taken for a while", append(r.who(), "for", o.pause.snooze.delay, attr)...)
		}
		r.notifyPausedFor()
	}
}

// shutFor shuts the valve for d, if it is not shut for longer already, and reports whether that begins a pause. over is called when it is over.
func (v *valve) shutFor(d time.Duration, over func()) (begins bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	until := time.Now().Add(d)
	if v.over || !until.After(v.until) {
		return false
	}
	begins = v.until.IsZero()
	v.until = until
	v.turn()
	time.AfterFunc(d, func() {
		if v.pauseOver(until) {
			over()
		}
	})
	return begins
}

// pauseOver opens the valve, unless the pause was made longer or has ended.
func (v *valve) pauseOver(until time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.until.Equal(until) {
		return false
	}
	v.until = time.Time{}
	v.turn()
	return true
}

// notifyPausedFor reports a change: handlers have paused the Worker, or that pause is over.
func (w *Worker) notifyPausedFor() {
	w.pausedFor.tell(&w.valve.mu, func() bool { return !w.valve.until.IsZero() }, func(paused bool) func() {
		return func() { w.notifyPaused(paused, PauseHandler) }
	})
}
