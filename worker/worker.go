package worker

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/pulsar-redelivery/redelivery"
)

// Worker takes messages from a Consumer, calls a handler for each and settles it by what the handler returns. New makes one; its
// methods may be called by any number of goroutines.
type Worker struct {
	settings
	consumer *redelivery.Consumer
	handle   func(ctx context.Context, tasks []task, errs []error) // calls the handler, and puts what it returns into errs
	batch    Batch                                                 // zero for a Handler
	valve    valve
	counts   counts
	run      atomic.Pointer[run] // nil until Run
}

// New returns a Worker that calls handler for each message of consumer. It returns an error that satisfies errors.Is with
// redelivery.ErrInvalidOption if consumer or handler is nil, or an option is not allowed.
//
// The Worker is the only one to receive from consumer, which stays the caller's to close, after Run.
func New(consumer *redelivery.Consumer, handler Handler, options ...Option) (*Worker, error) {
	if handler == nil {
		return nil, invalid("New's handler", "nil", "a Handler")
	}
	w, err := newWorker(consumer, options)
	if err != nil {
		return nil, err
	}
	chained, err := w.chain(handler)
	if err != nil {
		return nil, err
	}
	w.handle = func(ctx context.Context, tasks []task, errs []error) { errs[0] = chained(ctx, tasks[0].counted()) }
	return w, nil
}

func newWorker(consumer *redelivery.Consumer, options []Option) (*Worker, error) {
	if consumer == nil {
		return nil, invalid("the consumer", "nil", "a *redelivery.Consumer")
	}
	s, err := newSettings(options)
	if err != nil {
		return nil, err
	}
	return &Worker{settings: s, consumer: consumer}, nil
}

// Run takes and handles messages until ctx is done or the Consumer is lost: closed, or given up by pulsar-client-go after
// MaxReconnectToBroker attempts. Then it takes no more, and drains: handlers go on until the drain timeout, after which their
// contexts end. Of a handler that returns later, nil and Permanent are still honoured; with any other error its message is left,
// and delivered again when the Consumer is closed.
//
// Run returns when all handlers have: nil if ctx is done. It does not wait longer than five seconds after the handlers'
// contexts ended: then it returns an error that names the messages of those that did not return. What it returns for a lost
// Consumer wraps the Consumer's error. It may be called once; a second call returns an error.
func (w *Worker) Run(ctx context.Context) error {
	r := newRun(w, ctx)
	defer r.end()
	defer r.stop()
	if !w.run.CompareAndSwap(nil, r) {
		return errors.New("worker: Run was called before, want a new Worker")
	}
	return r.run()
}

// Pause takes no more messages until Resume. Those that were taken before are handled, and their ack timeouts renewed, as
// always. It may be called at any time, before Run too; pausing twice is pausing once.
func (w *Worker) Pause() {
	if w.valve.shut() {
		w.logger.Info("worker: paused", w.who()...)
		w.tellPaused(true, redelivery.PauseAsked)
	}
}

// Resume ends Pause.
func (w *Worker) Resume() {
	if w.valve.open() {
		w.logger.Info("worker: resumed", w.who()...)
		w.tellPaused(false, redelivery.PauseAsked)
	}
}

// State is what a Worker does at one moment, and what it did until then.
type State struct {
	Paused bool
	Outage bool // WithPauseOnFailure has one message at a time tried

	InFlight     int   // messages that are handled or settled, or kept in an outage: at most WithConcurrency, or as many batches
	Stuck        int   // handlers that did not return within five seconds after their context ended
	Waiting      int   // messages that wait for others of their keys, or to be tried again, with WithKeyOrder
	WaitingBytes int64 // what they count towards WithHoldLimit

	Succeeded uint64 // messages acknowledged
	Failed    uint64 // errors but for permanent ones, each time; those that made a dead letter, too
	Permanent uint64 // errors for which trying again is of no use: Permanent, and those of messages past WithMaxAge
	Expired   uint64 // of these, the latter
	Panics    uint64
	Unsettled uint64 // attempts to acknowledge, nack or publish a dead letter that failed
	Left      uint64 // messages left to the broker by a drain
}

// counts are the figures of State that only grow.
type counts struct {
	succeeded, failed, permanent, expired, panics, unsettled, left atomic.Uint64
}

// State returns the Worker's state.
func (w *Worker) State() State {
	s := State{
		Paused:    w.valve.isShut(),
		Succeeded: w.counts.succeeded.Load(),
		Failed:    w.counts.failed.Load(),
		Permanent: w.counts.permanent.Load(),
		Expired:   w.counts.expired.Load(),
		Panics:    w.counts.panics.Load(),
		Unsettled: w.counts.unsettled.Load(),
		Left:      w.counts.left.Load(),
	}
	if r := w.run.Load(); r != nil {
		s.InFlight, s.Stuck = r.inFlight()
		s.Outage = r.outage != nil && r.outage.current() != nil
		if r.lanes != nil {
			s.Waiting, s.WaitingBytes = r.lanes.waiting()
		}
	}
	return s
}

// who says which consumer it is, for the log.
func (w *Worker) who() []any {
	return []any{"consumer", w.consumer.Name(), "subscription", w.consumer.Subscription()}
}
