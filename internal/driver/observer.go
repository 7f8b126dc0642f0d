package driver

import (
	"context"
	"fmt"
	"log/slog"
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

func (o Outcome) String() string {
	return Name(o, "acked", "nacked", "timed_out", "reconsumed", "dead_lettered")
}

// Cause is redelivery.Cause.
type Cause uint8

// The causes.
const (
	CauseNack Cause = iota + 1
	CauseTimeout
	CauseRetryTopic
	CauseReconnect
)

func (c Cause) String() string { return Name(c, "", "nack", "timeout", "retry_topic", "reconnect") }

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

// logDecisions has each decision logged too, if the logger is for that: what is to be logged has to be known when a message is
// delivered.
func (x *Driver) logDecisions() {
	if !x.settings.Logger.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	log := func(what string, e Event, attrs ...any) {
		x.log(slog.LevelDebug, what, append([]any{"topic", e.Topic, "message", e.ID}, attrs...)...)
	}
	o := &x.observer.Observer
	o.Any, o.Timed = true, true
	o.Delivered = both(x, o.Delivered, func(e Delivered) {
		log("delivered", e.Event, "redelivery", e.Count, "cause", e.Cause.String(), "late", e.Lateness)
	})
	o.Settled = both(x, o.Settled, func(e Settled) {
		if e.Outcome != DeadLettered || e.Err != nil { // else it was logged
			log(e.Outcome.String(), e.Event, "attempts", e.Attempts, "delay", e.Delay, "duration", e.Duration, "error", e.Err)
		}
	})
	for what, of := range map[string]*func(Event){"held": &o.Held, "dropped": &o.Dropped, "swallowed": &o.Swallowed, "asked": &o.Asked} {
		*of = both(x, *of, func(e Event) { log(what, e) })
	}
}

// both returns a function that calls first, which may be nil, and then second, which may panic.
func both[E any](x *Driver, first, second func(E)) func(E) {
	return func(e E) {
		if first != nil {
			first(e)
		}
		x.safely(func() { second(e) })
	}
}
