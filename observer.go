package redelivery

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Observer is a set of functions that are told what a Consumer does, and a Worker with it; nil ones are skipped. More may be
// added. Package metrics makes Prometheus metrics of them, module otel traces.
//
// Functions are called by many goroutines at once, with no lock held, and may call any method of the Consumer, Close included; a
// panic is logged and counted in Stats. Delivered, Settled and what a Worker tells are called by the goroutine that receives,
// settles or handles, which waits for them; timeouts, dead letters of last deliveries and all else by goroutines of the Consumer.
// A Seek, and Close, may leave out what was not told yet.
type Observer struct {
	Subscribed func(*Consumer) // before it has a message
	Closed     func(*Consumer) // when Close has ended

	Delivered func(Delivered) // a message was handed to the application
	Settled   func(Settled)   // it was acknowledged, nacked, published elsewhere, or its ack timeout is over

	Held      func(Event) // a copy came early, and is kept until the message is due
	Dropped   func(Event) // a copy came early, and did not fit the hold limit
	Swallowed func(Event) // a copy of a settled message came, and is acknowledged again
	Asked     func(Event) // the broker is asked for a message

	Failed func(Failed) // something failed that could not be returned, and that Settled does not tell

	Handling func(Handling) // a Worker's handler is called
	Handled  func(Handled)  // it has returned
	Paused   func(Paused)   // a Worker takes no more messages, or does again

	// Untimed tells that nothing above needs Settled.Duration, nor Settled.Took of acknowledgements. They are 0 if that is so of
	// all observers, which saves reading the clock three times for each message.
	Untimed bool
}

// WithObserver (default: none) has o told what the Consumer does. It may be given more than once: all are told, in the order in
// which they are given.
func WithObserver(o Observer) Option {
	return func(s *settings) error {
		s.observers = append(s.observers, o)
		return nil
	}
}

// Event says which message something happened to.
type Event struct {
	Consumer     *Consumer        // that it happened at
	Topic        string           // of the message, with its partition; "" if it is not known
	Subscription string           // of the Consumer
	ID           pulsar.MessageID // of the newest delivery
	Message      pulsar.Message   // nil if only its id is here
}

// Delivered tells that the application has a message. One from Chan may be settled before that is told.
type Delivered struct {
	Event
	Count    uint32        // the redelivery count, as the policies see it
	Cause    Cause         // why it came again; 0 for a first delivery
	Due      time.Time     // when it was to come; zero if nothing here waited for it
	Lateness time.Duration // how long after Due it came
}

// Settled tells what became of a message. With an error nothing did: it is still the application's, or waits as after a nack.
//
// The last nack of a message, and the last ack timeout, are told as DeadLettered alone, once it is published; a nack that
// moves a message to the retry topic is told as Reconsumed. Acknowledging a message that is not known, because it was settled
// before, is not told.
type Settled struct {
	Event
	Outcome  Outcome       // what became of it
	Attempts uint32        // how often the application had it until now; 0 if it acknowledged it by its id without having it
	Delay    time.Duration // until it comes again: of Nacked, and of Reconsumed
	To       string        // the topic that it was published to: of Reconsumed and DeadLettered
	Reason   Reason        // of DeadLettered
	Why      error         // likewise: what the dead letter says
	Duration time.Duration // for how long the application had it; 0 if that is not known
	Took     time.Duration // to settle it: until the broker answered, where that is waited for
	Err      error         // why it is not settled; nil for success
}

// Outcome says how a message was settled.
type Outcome uint8

const (
	Acked        Outcome = iota // acknowledged, in a transaction too
	Nacked                      // it waits for its delay
	TimedOut                    // its ack timeout is over
	Reconsumed                  // published to the retry topic
	DeadLettered                // published to the dead letter topic
)

// String returns the outcome as package metrics has it: "acked", "nacked", "timed_out", "reconsumed" or "dead_lettered".
func (o Outcome) String() string {
	return name(o, "acked", "nacked", "timed_out", "reconsumed", "dead_lettered")
}

// Cause says why a message came again.
type Cause uint8

const (
	CauseNack       Cause = iota + 1 // of its last delivery
	CauseTimeout                     // of its ack
	CauseRetryTopic                  // it came from there
	CauseReconnect                   // the broker sent it again after a consumer or its connection was lost
)

// String returns the cause as package metrics has it: "nack", "timeout", "retry_topic" or "reconnect"; "" for 0.
func (c Cause) String() string { return name(c, "", "nack", "timeout", "retry_topic", "reconnect") }

// Reason says why a message became a dead letter.
type Reason uint8

const (
	ReasonMaxDeliveries Reason = iota + 1 // it was delivered, or reconsumed, as often as it may be
	ReasonPermanent                       // a Worker's handler returned Permanent, or the message was too old to be tried again
	ReasonExplicit                        // DeadLetter was called
)

// String returns the reason as package metrics has it: "max_deliveries", "permanent" or "explicit"; "" for 0.
func (r Reason) String() string { return name(r, "", "max_deliveries", "permanent", "explicit") }

func name[N ~uint8](n N, names ...string) string {
	if int(n) < len(names) {
		return names[n]
	}
	return fmt.Sprintf("unknown(%d)", n)
}

// Failed tells of something that could not be returned as an error. Stats counts it.
type Failed struct {
	Consumer     *Consumer // that failed
	Subscription string    // of the Consumer
	Operation    string    // "ack", "nack", "reconsume", "receive", "count", "policy", "callback" or "other"
	Err          error     // why
}

// Handling tells that a Worker calls its handler for a message.
type Handling struct{ Event }

// Handled tells that a Worker's handler has returned. For a batch it is told for each message.
type Handled struct {
	Event
	Outcome  Outcome       // what the Worker makes of it: Acked, Nacked or DeadLettered
	Duration time.Duration // of the handler
	Err      error         // that it returned
}

// Paused tells that a Worker takes no more messages, or does again. It may do so for several reasons at a time.
type Paused struct {
	Consumer     *Consumer // of the Worker
	Subscription string    // of the Consumer
	Paused       bool      // false: resumed
	Why          Pause     // the reason that began or ended
}

// Pause says why a Worker takes no more messages.
type Pause uint8

const (
	PauseAsked     Pause = iota // its Pause was called
	PauseOutage                 // most messages failed, and one at a time is tried: WithPauseOnFailure
	PauseHoldLimit              // too many messages wait for others of their keys: WithKeyOrder
)

// String returns "asked", "outage" or "hold_limit".
func (p Pause) String() string { return name(p, "asked", "outage", "hold_limit") }

// Observer returns an Observer that tells all those of WithObserver; what none of them observes is nil. It is for packages that
// work with a Consumer, as worker does.
func (c *Consumer) Observer() Observer { return c.observed.Observer }

// observed is what a Consumer tells its observers by.
type observed struct {
	Observer          // tells all
	any          bool // somebody observes
	timed        bool // and wants to know for how long the application has messages
	subscription string
	delivered    []func(Delivered) // as in Observer, for what happens to each message
	settled      []func(Settled)
	told         chores // what is told by goroutines that must not wait, or may not be closed by who is told
}

// observe combines the observers.
func (c *Consumer) observe() {
	x, s := &c.observed, c.settings
	x.subscription = c.Subscription()
	if o, ok := c.logDecisions(); ok {
		s.observers = append(s.observers[:len(s.observers):len(s.observers)], o)
	}
	for _, o := range s.observers {
		x.any = true
		x.timed = x.timed || !o.Untimed && o.Settled != nil
		if o.Delivered != nil {
			x.delivered = append(x.delivered, o.Delivered)
		}
		if o.Settled != nil {
			x.settled = append(x.settled, o.Settled)
		}
	}
	x.Observer = Observer{
		Subscribed: all(c, func(o Observer) func(*Consumer) { return o.Subscribed }),
		Closed:     all(c, func(o Observer) func(*Consumer) { return o.Closed }),
		Delivered:  all(c, func(o Observer) func(Delivered) { return o.Delivered }),
		Settled:    all(c, func(o Observer) func(Settled) { return o.Settled }),
		Held:       all(c, func(o Observer) func(Event) { return o.Held }),
		Dropped:    all(c, func(o Observer) func(Event) { return o.Dropped }),
		Swallowed:  all(c, func(o Observer) func(Event) { return o.Swallowed }),
		Asked:      all(c, func(o Observer) func(Event) { return o.Asked }),
		Failed:     all(c, func(o Observer) func(Failed) { return o.Failed }),
		Handling:   all(c, func(o Observer) func(Handling) { return o.Handling }),
		Handled:    all(c, func(o Observer) func(Handled) { return o.Handled }),
		Paused:     all(c, func(o Observer) func(Paused) { return o.Paused }),
	}
}

// all returns a function that calls one of each observer, or nil if none has it.
func all[E any](c *Consumer, of func(Observer) func(E)) func(E) {
	var functions []func(E)
	for _, o := range c.settings.observers {
		if f := of(o); f != nil {
			functions = append(functions, f)
		}
	}
	if len(functions) == 0 {
		return nil
	}
	return func(event E) {
		for _, f := range functions {
			callObserver(c, f, &event)
		}
	}
}

func callObserver[E any](c *Consumer, f func(E), event *E) {
	defer func() {
		if r := recover(); r != nil {
			err := fmt.Errorf("panic: %v", r)
			if _, ok := any(event).(*Failed); ok { // of which it would only be told again
				c.report("a callback", err)
			} else {
				c.fail("a callback", err)
			}
		}
	}()
	f(*event)
}

// later tells from a goroutine that has nothing else to do.
func (c *Consumer) later(tell func()) {
	if c.life.ended.Err() == nil {
		c.start(&c.observed.told, func(context.Context) { tell() })
	}
}

// event says which message it is.
func (c *Consumer) event(topic string, id pulsar.MessageID, msg pulsar.Message) Event {
	return Event{Consumer: c, Topic: topic, Subscription: c.observed.subscription, ID: id, Message: msg}
}
