package worker

import (
	"errors"
	"fmt"
	"time"
)

// Permanent returns an error that makes the message a dead letter at once, with err as the reason. Without a dead
// letter topic the message is nacked. The error has the text of err, wraps err for errors.Is and errors.As, and may
// itself be wrapped. Permanent(nil) is an error too.
func Permanent(err error) error { return &permanentError{orUnknown(err)} }

// RetryAfter returns an error that makes the message come back after delay instead of the nack policy's delay. A
// negative delay counts as 0. The delivery counts: on the last one the message becomes a dead letter, with err as the
// reason. The error has the text of err, wraps err for errors.Is and errors.As, and may itself be wrapped.
// RetryAfter(delay, nil) is an error too.
func RetryAfter(delay time.Duration, err error) error {
	return &retryAfterError{max(0, delay), orUnknown(err)}
}

// Snooze returns an error that makes the message come back after delay without counting this delivery: the redelivery
// count stays the same, and so do the policy's next delay and the deliveries left by MaxDeliveries. With WithKeyOrder
// the key waits. Return it if the message cannot be handled yet and nothing failed: for example, a record that it
// refers to does not exist yet. Nothing limits how often a message is snoozed, not even WithMaxAge. A negative delay
// counts as 0.
//
// The message waits in memory, on every subscription type; after a restart the broker sends it at once. If the message
// does not fit redelivery.WithMemoryLimit, the broker delivers it again, and counts that delivery on Shared and
// Key_Shared. An error that wraps a Snooze is a Snooze too, whatever else it wraps, so a classifier may wrap it. For
// WithPauseOnFailure a Snooze is neither a failure nor a success.
func Snooze(delay time.Duration) error { return &snoozeError{max(0, delay)} }

// PauseFor returns an error that snoozes the message for d, like Snooze, and makes the Worker take no messages for d:
// use it if the other side wants no calls for a while, like an HTTP server that answers 429 with Retry-After. Neither
// the snooze nor the pause counts as an attempt. Messages that handlers already have are still handled. If several
// handlers return it, the longest pause counts. A drain ends the pause. Unlike Pause, PauseFor leaves prefetched
// messages with the Consumer. The error wraps err, with d before its text, and may itself be wrapped; IsSnooze is true
// for it. A negative d counts as 0.
func PauseFor(d time.Duration, err error) error {
	return &pauseForError{snoozeError{max(0, d)}, orUnknown(err)}
}

// IsSnooze reports whether err is a Snooze or wraps one, so that a middleware can distinguish a Snooze from a failure.
func IsSnooze(err error) bool { return snoozeIn(err) != nil }

// snoozeIn returns the Snooze in err, or nil. An error whose methods panic has none.
func snoozeIn(err error) (found *snoozeError) {
	defer func() {
		if recover() != nil {
			found = nil
		}
	}()
	errors.As(err, &found)
	return found
}

var errUnknown = errors.New("no reason given")

func orUnknown(err error) error {
	if err == nil {
		return errUnknown
	}
	return err
}

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

type retryAfterError struct {
	delay time.Duration
	error
}

func (e *retryAfterError) Unwrap() error { return e.error }

type snoozeError struct{ delay time.Duration }

func (e *snoozeError) Error() string { return fmt.Sprintf("snoozed for %v", e.delay) }

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

// PanicError is the error that a panic of a handler or a middleware becomes. It is handled like any other error. If a
// method of the handler's error panics, as methods of a nil pointer do, the Worker replaces that error by one that
// names the type.
type PanicError struct {
	Value any    // the argument of panic
	Stack []byte // the stack of the panic as debug.Stack shows it, beginning with the function that panicked
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns Value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// errExited is the result of a handler that ended its goroutine.
var errExited = errors.New("the handler called runtime.Goexit")
