package workertest

import (
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Attempt is one call of the handler with a message, and what became of the message. A call with a batch is an Attempt
// for each of its messages.
type Attempt struct {
	Message      *pulsar.ProducerMessage // as it was first published; for a retry, the original message
	At           time.Duration           // when the handler was called, counted from when the Subscription was made
	Worker       int                     // whose handler it was: 0 for the Worker that was started first
	Redeliveries uint32                  // msg.RedeliveryCount()
	// the handler's error, before WithClassifier; a *worker.PanicError if the handler panicked; for a
	// worker.BatchError, this message's error
	Err       error
	Took      time.Duration // how long the handler took
	Acked     bool
	Discarded bool   // it was acknowledged in place of a dead letter: DeadLetterPolicy.Discard
	Dead      bool   // the message became a dead letter
	Reason    string // the reason in the dead letter
	// Back is how long after the attempt the message came back; negative if it came back before the handler returned,
	// as after an ack timeout or to another Worker; 0 if it was acknowledged or became a dead letter.
	Back time.Duration
	Open bool // the fate is not known yet: the handler is running, or the message waits
}

// String describes how the message was settled, after the error if there was one: "acked", "timeout: back after 2s",
// "timeout: dead letter: timeout", "not settled".
func (a Attempt) String() string {
	var s string
	switch {
	case a.Dead:
		s = "dead letter: " + a.Reason
	case a.Discarded:
		s = "discarded"
	case a.Acked:
		s = "acked"
	case a.Open:
		s = "not settled"
	case a.Back < 0:
		s = fmt.Sprintf("back %v before it returned", -a.Back)
	default:
		s = fmt.Sprintf("back after %v", a.Back)
	}
	if a.Err != nil {
		return fmt.Sprintf("%v: %s", a.Err, s)
	}
	return s
}

// Attempts are attempts in the order in which the handler was called.
type Attempts []Attempt

// Strings returns Attempt.String of each attempt.
func (a Attempts) Strings() (rows []string) {
	for _, attempt := range a {
		rows = append(rows, attempt.String())
	}
	return rows
}
