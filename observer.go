package redelivery

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/partition"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
)

// Observer is a set of functions that a Consumer calls when something happens; WithObserver sets them. Nil functions
// are skipped. Later versions may add more. Package metrics turns these calls into Prometheus metrics, and module otel
// into traces. worker.Observer is for Workers.
//
// Many goroutines call the functions at the same time, with no lock held. A function may call any method of the
// Consumer, Close included. A panic of a function is not recovered. The goroutine that receives or settles a message
// calls Delivered and Settled, and waits for them; Subscribe and Close call Subscribed and Closed. Goroutines of the
// Consumer call the other functions, and Settled for ack timeouts and for publications that no caller waits for. A Seek
// or Close may skip calls that are still pending.
//
// Dropped is called for four kinds of messages: a copy that comes early and does not fit the memory limit; a message
// that was received over a connection that is lost; a message of a Failover partition that came before this Consumer
// was the active one; and, on Exclusive and Failover, a message that came before an earlier one that is missing.
type Observer struct {
	Subscribed func(*Consumer) // the Consumer is made and has received nothing yet
	Closed     func(*Consumer) // Close is about to return

	Delivered func(Delivered) // a message was handed to the application
	// a message was acknowledged, nacked or published to another topic, or its ack timeout is over
	Settled func(Settled)

	Buffered  func(Event) // a copy came early, and is kept in memory
	Dropped   func(Event) // a message was dropped because it comes again, see above
	Swallowed func(Event) // a copy of a settled message came; it is acknowledged again and not delivered
	Asked     func(Event) // the Consumer asks the broker to send a message again

	Lost    func(Lost)    // messages that the application has may belong to another consumer
	Blocked func(Blocked) // the broker may have stopped sending because of unacknowledged messages

	Failed func(Failed) // a failure that no method could return as an error, and that Settled does not report

	// Untimed says that no function above needs Settled.Duration, or Settled.Took of acknowledgements. If all observers
	// are Untimed, both are 0, which saves three readings of the clock for each message. Default: false.
	Untimed bool
}

// Event says which message something happened to.
type Event struct {
	Consumer     *Consumer        // where it happened
	Topic        string           // the message's topic, with its partition; "" if unknown
	Subscription string           // of the Consumer
	ID           pulsar.MessageID // of the message's newest delivery
	Message      pulsar.Message   // nil if only the id is known
}

// Delivered reports that the application has taken a message. A message from Chan may be settled before its Delivered
// is reported.
type Delivered struct {
	Event
	Count    uint32        // the redelivery count; policies get this count
	Cause    Cause         // why it came again; "" for a first delivery
	Due      time.Time     // when it was due; after RedeliverNow, when it came; zero if it had no delay or timeout
	Lateness time.Duration // how long after Due it came
}

// Settled reports the outcome of a message. If Err is not nil, the message is not settled: the application still has
// it, or it waits as after a nack.
//
// The nack or ack timeout of a last delivery is reported only as DeadLettered, after the dead letter is published. If a
// message that timed out or was nacked by id is not in memory, the broker has to send it once more: then Nacked or
// TimedOut is reported first. A nack that moves a message to the retry topic is reported only as Reconsumed. A second
// acknowledgement of a settled message is not reported.
type Settled struct {
	Event
	Outcome Outcome // how the message was settled
	// how often the application has received it, over all retries; a delivery that ended with Snooze does not count
	Attempts uint32
	Delay    time.Duration // until it comes again; for Nacked, Snoozed and Reconsumed
	To       string        // the topic that it was published to; for Reconsumed and DeadLettered
	Reason   Reason        // for DeadLettered and Discarded
	Why      error         // the error in the dead letter; for DeadLettered and Discarded
	Duration time.Duration // how long the application had it; 0 if unknown
	Took     time.Duration // how long settling took, including the broker's answer if the call waits for it
	Err      error         // why it is not settled; nil if it is
}

// Outcome is how a message was settled, or that it waits. Metrics and logs use the same text.
type Outcome string

const (
	Acked        Outcome = "acked"         // acknowledged, in a transaction too
	Nacked       Outcome = "nacked"        // it waits for its delay
	Snoozed      Outcome = "snoozed"       // it waits for its delay, and nothing failed
	TimedOut     Outcome = "timed_out"     // its ack timeout is over
	Reconsumed   Outcome = "reconsumed"    // published to the retry topic
	DeadLettered Outcome = "dead_lettered" // published to the dead letter topic
	Discarded    Outcome = "discarded"     // acknowledged in place of a dead letter: DeadLetterPolicy.Discard
)

// Cause says why a message came again; "" for a first delivery. Metrics and logs use the same text.
type Cause string

const (
	CauseNack       Cause = "nack"        // the application nacked its last delivery
	CauseTimeout    Cause = "timeout"     // the ack timeout of its last delivery was over
	CauseRetryTopic Cause = "retry_topic" // it came from the retry topic
	CauseReconnect  Cause = "reconnect"   // the broker sent it again after a consumer or its connection was lost
)

// Reason says why a message became a dead letter, or was discarded: "max_deliveries", "permanent", "crashed",
// "explicit" or "ttl"; "" if it was not. Metrics and logs use the same text.
type Reason string

const (
	ReasonMaxDeliveries Reason = publishing.MaxDeliveries // delivered or reconsumed as often as allowed
	// a Worker's handler returned Permanent, or the message was too old for another try
	ReasonPermanent Reason = publishing.Permanent
	ReasonExplicit  Reason = publishing.Explicit // DeadLetter was called
	// the number of processes that died while they handled the message has reached worker.WithCrashLimit
	ReasonCrashed Reason = publishing.Crashed
	// the next delay would have ended after the namespace's TTL: WithDeadBeforeTTL
	ReasonTTL Reason = publishing.TTL
)

// Blocked reports that the broker may have stopped sending to a Shared or Key_Shared consumer because too many messages
// are unacknowledged: nothing came for a second although the application waited, and 45,000 messages or more of a
// partition are unacknowledged. By default the broker stops at 50,000 (maxUnackedMessagesPerConsumer).
//
// Messages that wait for redelivery count. Without batch-index acknowledgement (EnableBatchIndexAcknowledgment) all
// messages of a batch count until the last one is acknowledged. Only settling messages helps. Blocked is reported again
// only after a message came in between.
type Blocked struct {
	Consumer       *Consumer // the one that gets nothing
	Subscription   string    // of the Consumer
	Unacknowledged int       // unacknowledged messages of the partition that has most
}

// Failed reports a failure that no method could return as an error. Stats counts it.
type Failed struct {
	Consumer     *Consumer // where it failed
	Subscription string    // of the Consumer
	Operation    string    // "ack", "nack", "reconsume", "receive", "count" or "attempt log"
	Err          error     // the failure
}

// observe sets c.observer, which calls all observers.
func (c *Consumer) observe(observers []Observer) {
	if c.settings.logger.Enabled(context.Background(), slog.LevelDebug) {
		observers = append(observers, c.decisions())
	}
	c.observer = Observer{
		Untimed:    !slices.ContainsFunc(observers, func(o Observer) bool { return !o.Untimed && o.Settled != nil }),
		Subscribed: all(observers, func(o Observer) func(*Consumer) { return o.Subscribed }),
		Closed:     all(observers, func(o Observer) func(*Consumer) { return o.Closed }),
		Delivered:  all(observers, func(o Observer) func(Delivered) { return o.Delivered }),
		Settled:    all(observers, func(o Observer) func(Settled) { return o.Settled }),
		Buffered:   all(observers, func(o Observer) func(Event) { return o.Buffered }),
		Dropped:    all(observers, func(o Observer) func(Event) { return o.Dropped }),
		Swallowed:  all(observers, func(o Observer) func(Event) { return o.Swallowed }),
		Asked:      all(observers, func(o Observer) func(Event) { return o.Asked }),
		Lost:       all(observers, func(o Observer) func(Lost) { return o.Lost }),
		Blocked:    all(observers, func(o Observer) func(Blocked) { return o.Blocked }),
		Failed:     all(observers, func(o Observer) func(Failed) { return o.Failed }),
	}
}

// decisions returns an Observer that logs each decision, except dead letters, which are logged in any case.
func (c *Consumer) decisions() Observer {
	log := func(what string, e Event, attrs ...any) {
		c.log(slog.LevelDebug, what, append([]any{"topic", e.Topic, "message", e.ID}, attrs...)...)
	}
	return Observer{
		Delivered: func(e Delivered) {
			log("delivered", e.Event, "redelivery", e.Count, "cause", e.Cause, "late", e.Lateness)
		},
		Settled: func(e Settled) {
			if e.Outcome != DeadLettered && e.Outcome != Discarded || e.Err != nil {
				log(string(e.Outcome), e.Event, "attempts", e.Attempts, "delay", e.Delay, "duration", e.Duration,
					"error", e.Err)
			}
		},
		Buffered:  func(e Event) { log("buffered", e) },
		Dropped:   func(e Event) { log("dropped", e) },
		Swallowed: func(e Event) { log("swallowed", e) },
		Asked:     func(e Event) { log("asked", e) },
	}
}

// all combines one function of each observer into one function. It returns nil if no observer sets that function.
func all[E any](observers []Observer, of func(Observer) func(E)) func(E) {
	var functions []func(E)
	for _, o := range observers {
		if f := of(o); f != nil {
			functions = append(functions, f)
		}
	}
	if len(functions) == 0 {
		return nil
	}
	return func(event E) {
		for _, f := range functions {
			f(event)
		}
	}
}

func (c *Consumer) event(topic string, id pulsar.MessageID, msg pulsar.Message) Event {
	return Event{c, topic, c.settings.Subscription, id, msg}
}

// observeCopy calls a function of observers, if it is set, for a copy that the application does not get.
func (c *Consumer) observeCopy(observe func(Event), cm pulsar.ConsumerMessage) {
	if observe != nil {
		c.observerCalls.add(c, func() { observe(c.event(cm.Topic(), cm.ID(), cm.Message)) })
	}
}

// deliveredEvent returns the event of a message that the application has just got, with the reason why it came.
func (c *Consumer) deliveredEvent(d *partition.Delivery, msg pulsar.Message) (e Delivered) {
	body := d.Body.(pulsar.Message)
	e.Event, e.Count = c.event(body.Topic(), msg.ID(), msg), d.Count
	if d.Cause != partition.NoCause {
		e.Due = c.start.Add(d.Due)
	}
	switch {
	case d.Cause == partition.Nacked, d.Cause == partition.Snoozed:
		e.Cause = CauseNack
	case d.Cause == partition.TimedOut:
		e.Cause = CauseTimeout
	case c.settings.isRetry(body):
		e.Cause = CauseRetryTopic
		if delay, ok := publishing.DelayTime(body); ok {
			e.Due = body.PublishTime().Add(min(delay, maxDelay))
		}
	case d.Count > 0:
		e.Cause = CauseReconnect
	}
	if !e.Due.IsZero() {
		now := time.Now()
		if e.Due.After(now) { // RedeliverNow ended its delay
			e.Due = now
		}
		e.Lateness = now.Sub(e.Due)
	}
	return e
}

// settledEvent returns the event of a message that the application had until the given time. The caller sets the fields
// that only some outcomes have.
func (c *Consumer) settledEvent(d *partition.Delivery, msg pulsar.Message, outcome Outcome,
	until time.Duration) Settled {
	id, _ := d.Object.(pulsar.MessageID)
	attempts := d.Count + min(1, ^d.Count)
	attempts += min(d.Earlier, ^attempts)
	e := Settled{Event: c.event(d.ID.Topic, id, msg), Outcome: outcome, Attempts: attempts}
	switch {
	case c.observer.Untimed:
	case d.HeldFor > 0:
		e.Duration = d.HeldFor
	case d.HeldSince > 0:
		e.Duration = max(0, until-d.HeldSince) // the application may have taken the message after until
	}
	return e
}
