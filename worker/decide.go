package worker

import (
	"errors"
	"fmt"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"
)

// After a handler has returned, this file decides how its message is settled. read turns the handler's error into an
// outcome. decide makes the outcome final, by the message's count and the options. Both are pure. settle.go carries the
// outcome out.

// outcome is how a message is settled.
type outcome struct {
	err      error          // the handler's; nil for ack
	because  string         // of dead: why the message becomes a dead letter, for package publishing
	delay    time.Duration  // of again and snooze
	since    time.Time      // of ack: when acknowledging it together with its batch failed; zero if that has not failed
	pause    *pauseForError // the handler's PauseFor; nil for none
	verb     verb
	or       verb // replaces dead if no dead letter can be published
	panicked bool // the error is or wraps a PanicError, which was logged
	away     bool // the delay is longer than the pause of an outage: the message is nacked, and others are tried
}

type verb uint8

const (
	nack   verb = iota // the message comes back by the policy
	again              // the message comes back after the outcome's delay
	snooze             // like again, but this delivery does not count
	ack
	dead  // the message becomes a dead letter
	leave // the broker delivers it again when the Consumer is closed
	hold  // the slot handles the message again: as a local retry, in an outage, or in a half of its batch
	acked // the message was acknowledged together with others of its batch
	done  // nothing is left to do: the message was left to the broker
)

// expired is the reason of a dead letter that WithMaxAge makes. Observers see ReasonPermanent.
const expired = "expired"

// fails reports whether the outcome is a failed attempt, after which the message is tried again.
func (o outcome) fails() bool { return o.verb == nack || o.verb == again }

// read returns the outcome that a handler's error asks for, by the table in the documentation of the package. It panics
// if a method of err does.
func read(err error) outcome {
	if err == nil {
		return outcome{verb: ack}
	}
	if s := snoozeIn(err); s != nil { // even if a classifier has wrapped it in Permanent
		return outcome{verb: snooze, delay: s.delay, err: err, pause: pauseIn(err)}
	}
	var permanent *permanentError
	var retry *retryAfterError
	switch {
	case isCrash(err):
		return outcome{verb: dead, err: cause(err), because: publishing.Crashed}
	case errors.As(err, &permanent):
		return outcome{verb: dead, err: cause(err), because: publishing.Permanent}
	case errors.As(err, &retry):
		return outcome{verb: again, delay: retry.delay, err: cause(err)}
	default:
		return outcome{err: err}
	}
}

// cause returns err without the mark that Permanent or RetryAfter put on it, so that a dead letter has the type of the
// cause.
func cause(err error) error {
	switch e := err.(type) { //nolint:errorlint // a mark inside another error stays, since that error is the cause
	case *permanentError:
		return e.error
	case *retryAfterError:
		return e.error
	}
	return err
}

// read calls the function read, and recovers a panic of a method of err, as of a nil pointer. An error that names the
// type of err then replaces err.
func (w *Worker) read(err error) (o outcome) {
	defer func() {
		if v := recover(); v != nil {
			if o.err != nil {
				err = o.err
			}
			o.err = w.broken(err, v)
		}
	}()
	o = read(err)
	if o.err != nil {
		_ = o.err.Error()
		var panicked *PanicError
		o.panicked = errors.As(o.err, &panicked)
	}
	return o
}

// attempt has the facts that decide what becomes of a message after its handler has returned.
type attempt struct {
	local   bool          // the handler is called again before the failure counts: WithLocalRetries
	stays   bool          // the message is tried again without a nack: an outage keeps it, or its batch is halved
	drained bool          // the handlers' contexts have ended
	old     time.Duration // the limit of WithMaxAge if the message is older than that; else 0
	last    bool          // this was the last delivery by MaxDeliveries
}

// decide returns the final outcome of a message.
func (o outcome) decide(a attempt) outcome {
	switch {
	case !o.fails() && o.verb != snooze: // the outcome is final already
	case o.verb == nack && a.local, o.fails() && a.stays:
		o.verb = hold
	case a.drained:
		o.verb = leave
	case o.verb == snooze: // final: it needs no dead letter, however old or often delivered the message is
	case a.old > 0:
		o.or, o.verb, o.because, o.err = o.verb, dead, expired, fmt.Errorf("older than %v: %w", a.old, o.err)
	case a.last: // a nack would also make the dead letter, but perhaps after Run has returned
		o.or, o.verb, o.because = nack, dead, publishing.MaxDeliveries
	}
	return o
}
