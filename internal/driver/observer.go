package driver

import (
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Observer is what a Driver calls with what it does, as redelivery.Observer says. Nil functions are skipped. None of them panics.
type Observer struct {
	Delivered func(Delivered)
	Settled   func(Settled)

	Held, Dropped, Swallowed, Asked func(Event)

	Failed func(Failed)

	Any   bool // somebody observes
	Timed bool // and wants to know for how long the application has messages
}

// Event says which message something happened to.
type Event struct {
	Topic   string
	ID      pulsar.MessageID
	Message pulsar.Message
}

// Delivered is redelivery.Delivered.
type Delivered struct {
	Event
	Count    uint32
	Cause    Cause
	Due      time.Time
	Lateness time.Duration
}

// Settled is redelivery.Settled.
type Settled struct {
	Event
	Outcome  Outcome
	Attempts uint32
	Delay    time.Duration
	To       string
	Reason   Reason
	Why      error
	Duration time.Duration
	Took     time.Duration
	Err      error
}

// Failed is redelivery.Failed.
type Failed struct {
	Operation string
	Err       error
}

// Outcome is redelivery.Outcome.
type Outcome uint8

// The outcomes.
const (
	Acked Outcome = iota
	Nacked
	TimedOut
	Reconsumed
	DeadLettered
)

// Cause is redelivery.Cause.
type Cause uint8

// The causes.
const (
	CauseNack Cause = iota + 1
	CauseTimeout
	CauseRetryTopic
	CauseReconnect
)

// Reason is redelivery.Reason.
type Reason uint8

func (r Reason) String() string { return Name(r, "", "max_deliveries", "permanent", "explicit") }

// Name returns the name of n.
func Name[N ~uint8](n N, names ...string) string {
	if int(n) < len(names) {
		return names[n]
	}
	return fmt.Sprintf("unknown(%d)", n)
}
