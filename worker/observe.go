package worker

import (
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
)

// Observer is a set of functions that a Worker calls when something happens; WithObserver sets them. Nil functions are
// skipped. Later versions may add more. redelivery.Observer reports how the messages are settled afterwards.
//
// Many goroutines call the functions at the same time, with no lock held, and wait for them: a slow function delays its
// message. A function may call any method of the Worker and of its Consumer, but must not settle the message.
type Observer struct {
	Handling func(Handling) // the handler is called next, in this goroutine
	Handled  func(Handled)  // the handler has returned; the message is not settled yet
	Paused   func(Paused)   // the Worker stopped taking messages, or resumed
	Running  func(Running)  // Run began, or is about to return
}

// Handling reports that a Worker is about to call its handler for a message. For a batch it is reported once for each
// message. Message.RedeliveryCount is the count that the handler sees. It is also reported for a message that becomes a
// dead letter by WithCrashLimit, although no handler is called. Handled follows with a *CrashError.
type Handling struct{ redelivery.Event }

// Handled reports that a Worker's handler has returned, panicked, or called runtime.Goexit. For a batch it is reported
// once for each message.
type Handled struct {
	redelivery.Event
	// the outcome that the handler's result asks for: Acked, DeadLettered after Permanent, Snoozed, else Nacked;
	// redelivery.Settled has the final one
	Outcome  redelivery.Outcome
	Duration time.Duration // how long the handler took; in a batch, for all messages together
	// the error of the handler or the classifier, without the mark of Permanent or RetryAfter
	Err error
}

// Paused reports that a Worker stopped taking messages, or resumed. A Worker may be paused for several reasons at a
// time. All pauses end when Run ends.
type Paused struct {
	Consumer     *redelivery.Consumer // of the Worker
	Subscription string               // of the Consumer
	Paused       bool                 // false: resumed
	Why          PauseReason          // the reason that began or ended
}

// Running reports that Run of a Worker began, or is about to return. Between the two, Worker.Stats has the current
// state.
type Running struct {
	Worker       *Worker              // that runs
	Consumer     *redelivery.Consumer // of the Worker
	Subscription string               // of the Consumer
	Running      bool                 // false: Run is about to return
}

// PauseReason says why a Worker takes no messages.
type PauseReason string

const (
	PauseAsked   PauseReason = "asked"   // Worker.Pause was called
	PauseHandler PauseReason = "handler" // a handler returned PauseFor
	// most messages failed, and the Worker tries one at a time: WithPauseOnFailure
	PauseOutage PauseReason = "outage"
	// the messages that wait for their keys reached the memory limit: WithKeyOrder
	PauseMemoryLimit PauseReason = "memory_limit"
)

// observers are the functions of all Observers, in order.
type observers struct {
	handling []func(Handling)
	handled  []func(Handled)
	paused   []func(Paused)
	running  []func(Running)
}

func (all *observers) add(o Observer) {
	if o.Handling != nil {
		all.handling = append(all.handling, o.Handling)
	}
	if o.Handled != nil {
		all.handled = append(all.handled, o.Handled)
	}
	if o.Paused != nil {
		all.paused = append(all.paused, o.Paused)
	}
	if o.Running != nil {
		all.running = append(all.running, o.Running)
	}
}

func notify[E any](functions []func(E), event E) {
	for _, f := range functions {
		f(event)
	}
}

func (w *Worker) event(msg pulsar.Message) redelivery.Event {
	return redelivery.Event{Consumer: w.consumer, Topic: msg.Topic(), Subscription: w.consumer.Subscription(),
		ID: msg.ID(), Message: msg}
}

func (w *Worker) notifyHandling(tasks []task) {
	if len(w.observers.handling) == 0 {
		return
	}
	for i := range tasks {
		notify(w.observers.handling, Handling{w.event(tasks[i].counted())})
	}
}

func (w *Worker) notifyHandled(tasks []task, outcomes []outcome, took time.Duration) {
	if len(w.observers.handled) == 0 {
		return
	}
	for i, t := range tasks {
		outcome := redelivery.Nacked
		switch outcomes[i].verb {
		case ack:
			outcome = redelivery.Acked
		case dead:
			outcome = redelivery.DeadLettered
		case snooze:
			outcome = redelivery.Snoozed
		default: // it will be tried again
		}
		notify(w.observers.handled, Handled{w.event(t.counted()), outcome, took, outcomes[i].err})
	}
}

func (w *Worker) notifyPaused(paused bool, why PauseReason) {
	notify(w.observers.paused, Paused{w.consumer, w.consumer.Subscription(), paused, why})
}

func (w *Worker) notifyRunning(running bool) {
	notify(w.observers.running, Running{w, w.consumer, w.consumer.Subscription(), running})
}
