package worker

import (
	"errors"
	"time"
)

// outcome is what becomes of a message after its handler returned.
type outcome struct {
	verb    verb
	or      verb          // in place of dead, if no dead letter can be published
	away    bool          // the delay is longer than the pause of an outage
	expired bool          // dead because the message is past WithMaxAge
	delay   time.Duration // of again and snooze
	began   time.Time     // of ack: when it failed with others of its batch; zero if it did not
	err     error         // the handler's; nil for ack
}

type verb uint8

const (
	nack   verb = iota // by the policy
	again              // nack with a delay of its own
	snooze             // likewise, and it does not count
	ack
	acked // with others, already
	dead
	leave // to the broker, which delivers it again when the Consumer is closed
	held  // by the slot, in an outage, of a halved batch or for a local retry
	done  // settled
)

// retries reports whether the message is to be tried again.
func (o outcome) retries() bool { return o.verb == nack || o.verb == again }

// outcomeOf is the table of the package's documentation. Methods of err are called here only, and may panic.
func (w *Worker) outcomeOf(err error) (o outcome) {
	if err == nil {
		return outcome{verb: ack}
	}
	defer func() {
		if v := recover(); v != nil {
			o = outcome{err: w.broken(err, v)}
		}
	}()
	var permanent *permanentError
	var retry *retryAfterError
	if s := snoozeIn(err); s != nil { // before what a classifier may have put around it
		return outcome{verb: snooze, delay: s.delay, err: err}
	}
	switch {
	case errors.As(err, &permanent):
		return outcome{verb: dead, err: reason(err)}
	case errors.As(err, &retry):
		return outcome{verb: again, delay: retry.delay, err: reason(err)}
	}
	return outcome{err: err}
}

// snoozeIn returns the Snooze in err, or nil. A method that panics is for others to tell.
func snoozeIn(err error) (found *snoozeError) {
	defer func() {
		if recover() != nil {
			found = nil
		}
	}()
	errors.As(err, &found)
	return found
}

// reason returns err without the mark that Permanent or RetryAfter put on it, so that a dead letter has the type of the cause.
func reason(err error) error {
	switch e := err.(type) { //nolint:errorlint // a mark inside another error stays, since that error is the cause
	case *permanentError:
		return e.error
	case *retryAfterError:
		return e.error
	}
	return err
}
