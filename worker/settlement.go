package worker

import (
	"errors"
	"fmt"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"
)

// This file decides how a message is settled after its handler has returned: read makes an outcome of the handler's
// error, and decide makes it final by the message's count and the options. Both are pure. settle.go carries the outcome
// out.

// outcome is how a message is settled.
type outcome struct {
	err     error          // the handler's; nil for ack
	because string         // of dead: the reason for publishing
	delay   time.Duration  // of again and snooze
	since   time.Time      // of ack: when acknowledging it together with its batch failed; zero if it did not
	pause   *pauseForError // the handler's PauseFor; nil for none
	verb    verb
	or      verb // in place of dead, if no dead letter can be published
	away    bool // its delay is longer than the pause of an outage, so it is nacked, and others are tried
}

type verb uint8

const (
	nack   verb = iota // it comes back by the policy
	again              // it comes back after the outcome's delay
	snooze             // as again, and this delivery does not count
	ack
	dead  // it becomes a dead letter
	leave // the broker delivers it again when the Consumer is closed
	hold  // its slot handles it again: as a local retry, in an outage, or in a half of its batch
	acked // it was acknowledged together with others of its batch
	done  // nothing is left to do: it was left to the broker
)

// expired is the reason of a dead letter past WithMaxAge. Observers see ReasonPermanent.
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
	case errors.As(err, &permanent):
		return outcome{verb: dead, err: cause(err), because: because(permanent)}
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

func because(err *permanentError) string {
	if _, crashed := err.error.(*CrashError); crashed { //nolint:errorlint // as limit made it
		return publishing.Crashed
	}
	return publishing.Permanent
}

// read is the function read for an error whose methods may panic, as those of a nil pointer do. If one panics, an error
// that names the type of err replaces err.
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
	}
	return o
}

// attempt describes a message whose handler has returned.
type attempt struct {
	local   bool          // the handler is called again first: WithLocalRetries
	stays   bool          // it is tried again without a nack: an outage keeps it, or its batch is halved
	drained bool          // the handlers' contexts have ended
	old     time.Duration // the age of WithMaxAge if it is older than that; else 0
	last    bool          // no delivery is left
}

// decide returns the final outcome of a message.
func (o outcome) decide(a attempt) outcome {
	switch {
	case !o.fails() && o.verb != snooze: // it is final already
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
