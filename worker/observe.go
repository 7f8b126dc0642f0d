package worker

import (
	"log/slog"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
)

// Observer is a set of functions that a Worker calls when something happens; WithObserver sets them. Nil functions are skipped. Later
// versions may add more. redelivery.Observer reports what happens to the messages afterwards.
//
// Many goroutines call the functions at once, with no lock held, and wait for them: a slow function delays its message. A function may
// call any method of the Worker and of its Consumer, but must not settle the message. If it panics, the Worker logs the panic and goes
// on. After runtime.Goexit the Worker goes on too, but may skip the functions of later Observers.
type Observer struct {
	Handling func(Handling) // the handler is called next, in this goroutine
	Handled  func(Handled)  // the handler has returned; the message is not settled yet
	Paused   func(Paused)   // the Worker stopped taking messages, or resumed
	Running  func(Running)  // Run began, or is about to return
}

// Handling reports that a Worker is about to call its handler for a message. For a batch it is reported once for each message.
// Message.RedeliveryCount is the count that the handler sees. Of a message that WithCrashLimit gives up it is reported too, and Handled follows,
// with a *CrashError, but no handler is called.
type Handling struct{ redelivery.Event }

// Handled reports that a Worker's handler has returned, panicked, or called runtime.Goexit. For a batch it is reported once for each
// message.
type Handled struct {
	redelivery.Event
	Outcome  redelivery.Outcome // what the handler's result calls for: Acked, DeadLettered after Permanent, Snoozed, else Nacked; redelivery.Settled reports what is done
	Duration time.Duration      // how long the handler took; in a batch, for all messages together
	Err      error              // what the handler or the classifier returned, without the mark of Permanent or RetryAfter
}

// Paused reports that a Worker stopped taking messages, or resumed. A Worker may be paused for several reasons at a time. They end when
// Run ends.
type Paused struct {
	Consumer     *redelivery.Consumer // of the Worker
	Subscription string               // of the Consumer
	Paused       bool                 // false: resumed
	Why          PauseReason          // the one that began or ended
}

// Running reports that Run of a Worker began, or is about to return. Between the two, Worker.Stats has the current state.
type Running struct {
	Worker       *Worker              // that runs
	Consumer     *redelivery.Consumer // of the Worker
	Subscription string               // of the Consumer
	Running      bool                 // false: Run is about to return
}

// PauseReason says why a Worker takes no messages.
type PauseReason string

const (
	PauseAsked       PauseReason = "asked"        // Worker.Pause was called
	PauseHandler     PauseReason = "handler"      // a handler returned PauseFor
	PauseOutage      PauseReason = "outage"       // most messages failed, and the Worker tries one at a time: WithPauseOnFailure
	PauseMemoryLimit PauseReason = "memory_limit" // the messages that wait for their keys reached the memory limit: WithKeyOrder
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

// tell calls functions of observers. The panic of one does not keep the others from being called.
func tell[E any](w *Worker, functions []func(E), event E) {
	for _, f := range functions {
		tellOne(w, f, event)
	}
}

func tellOne[E any](w *Worker, f func(E), event E) {
	defer func() {
		if v := recover(); v != nil {
			_ = w.logPanic(v, slog.String("in", "an observer"))
		}
	}()
	f(event)
}

func (w *Worker) event(msg pulsar.Message) redelivery.Event {
	return redelivery.Event{Consumer: w.consumer, Topic: msg.Topic(), Subscription: w.consumer.Subscription(), ID: msg.ID(), Message: msg}
}

// tellHandling tells that the handler is called.
func (w *Worker) tellHandling(tasks []task) {
	if len(w.observers.handling) == 0 {
		return
	}
	for _, t := range tasks {
		tell(w, w.observers.handling, Handling{w.event(t.counted())})
	}
}

// tellHandled tells that the handler has returned.
func (w *Worker) tellHandled(tasks []task, outcomes []outcome, took time.Duration) {
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
		default: // it is to be tried again
		}
		tell(w, w.observers.handled, Handled{w.event(t.counted()), outcome, took, outcomes[i].err})
	}
}

// tellPaused tells that the Worker takes no more messages, or does again. It does so in a goroutine of its own, which alone ends if an
// observer calls runtime.Goexit: the caller may have messages that nobody else knows of.
func (w *Worker) tellPaused(paused bool, why PauseReason) {
	if len(w.observers.paused) == 0 {
		return
	}
	told := make(chan struct{})
	go func() {
		defer close(told)
		tell(w, w.observers.paused, Paused{w.consumer, w.consumer.Subscription(), paused, why})
	}()
	<-told
}

// tellRunning tells that Run begins, or returns.
func (w *Worker) tellRunning(running bool) {
	tell(w, w.observers.running, Running{w, w.consumer, w.consumer.Subscription(), running})
}
