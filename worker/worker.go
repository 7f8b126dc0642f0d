package worker

import (
	"context"
	"sync/atomic"

	"github.com/pulsar-redelivery/redelivery"
)

// Worker takes messages from a Consumer, calls a handler for each, and settles the message by the handler's error. New
// and NewBatch make a Worker. It is safe for concurrent use.
type Worker struct {
	settings
	consumer *redelivery.Consumer
	// calls the handler, puts its results into errs, and reports whether one error is for all messages
	handle  func(context.Context, []task, []error) (whole bool)
	batch   Batch // zero for a Handler
	pauser  pauser
	counts  counts
	repeats repeats

	selfSettled selfSettled
	run         atomic.Pointer[run] // nil until Run
}

// New returns a Worker that calls handler for each message of consumer. If consumer or handler is nil or an option is
// not allowed, the error satisfies errors.Is with redelivery.ErrInvalidOption.
//
// Only the Worker may receive from consumer and give its messages back: after redelivery.Consumer.GiveBack the
// handlers' messages cannot be acknowledged until the Worker receives again. That takes a minute if all WithConcurrency
// messages wait to be acknowledged. The caller closes consumer after Run has returned.
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
	w.handle = func(ctx context.Context, tasks []task, errs []error) bool {
		errs[0] = chained(ctx, tasks[0].counted())
		return false
	}
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
	if err := s.needsLog(consumer); err != nil {
		return nil, err
	}
	w := &Worker{settings: s, consumer: consumer, selfSettled: selfSettled{loss: consumer.NextLoss()}}
	w.repeats.other = func(more int) {
		w.logger.Warn("worker: more failures of other kinds", append(w.who(), "failures", more)...)
	}
	return w, nil
}

// Run takes and handles messages until ctx is done or the Consumer is lost: closed, or given up by pulsar-client-go
// after MaxReconnectToBroker attempts. (A paused Worker notices that only after Resume.) Then it takes no more messages
// and drains: running handlers go on until the drain timeout, and then their contexts end. If a handler returns nil or
// Permanent after its context ended, its message is still settled. After any other error the message is left to the
// broker, which delivers it again when the Consumer is closed.
//
// Run returns when all handlers have returned: nil if ctx is done, and an error that wraps the Consumer's error if the
// Consumer is lost. It waits for at most five seconds after the handlers' contexts ended. Then it returns an error that
// names the messages of the handlers that did not return. Run may be called once; a second call returns an error. Run
// of another Worker of the same Consumer returns an error, too, until this one has returned; that error satisfies
// errors.Is with redelivery.ErrInvalidOption. A nil ctx is never done.
func (w *Worker) Run(ctx context.Context) error {
	if ctx == nil {
		ctx = context.Background()
	}
	r := newRun(w, ctx)
	defer r.end()
	defer r.stop()
	release, err := w.claim()
	if err != nil {
		return err
	}
	defer release()
	if !w.run.CompareAndSwap(nil, r) {
		return errRanBefore
	}
	defer w.notifyRunning(false)
	w.notifyRunning(true)
	return r.run()
}

// Pause stops the Worker from taking messages until Resume. Messages taken before are still handled, except that with
// WithKeyOrder those that wait for their keys wait until Resume. When none is left, prefetched messages go back to the
// broker if the Consumer can return them (redelivery.Consumer.GiveBack) and no message waits for its key. Pause may be
// called before Run. A second Pause does nothing. When Run returns, the pause ends, and Pause no longer has an effect.
func (w *Worker) Pause() {
	w.pauser.setAsked(true)
	w.notifyAsked()
}

// Resume ends Pause.
func (w *Worker) Resume() {
	w.pauser.setAsked(false)
	w.notifyAsked()
}

// Stats are the counters of a Worker since New, and its current state.
type Stats struct {
	Paused bool // between Pause and Resume, or the end of Run; or after a PauseFor
	// in an outage (WithPauseOnFailure) the Worker tries one message at a time until one succeeds; if it has none to
	// try, it waits for the next one
	Outage bool

	// messages being handled or settled, or held in an outage: at most WithConcurrency messages or batches, beside
	// those of stuck handlers, and in an outage 1,000 more
	InFlight int
	Stuck    int // handlers that did not return within five seconds after their context ended
	Waiting  int // with WithKeyOrder: messages that wait for earlier ones of their keys, or for another try
	// the waiting messages reached the Consumer's memory limit: the Worker takes none until one of them is done
	Full bool

	// messages acknowledged, and those that became dead letters by an ack timeout while their handler succeeded
	Succeeded uint64
	// errors, each time, except those under Permanent, those of an outage that count as no attempt
	// (WithPauseOnFailure), those of a batch that is halved, and those that a local retry follows
	Failed  uint64
	Snoozed uint64 // Snoozes, each time
	// errors without a retry: Permanent, and past WithMaxAge; if no dead letter can be made, they count as Failed
	// instead
	Permanent uint64
	Expired   uint64 // those of Permanent that are past WithMaxAge
	Panics    uint64 // of handlers, middleware, and methods of their errors
	Unsettled uint64 // attempts to acknowledge, nack or publish a dead letter that failed
	// messages left unsettled, to the broker or to the Consumer: by a drain, or since they could not be acknowledged
	Left uint64
	// messages dropped before their handler was called, because they belong to another consumer:
	// redelivery.Observer.Lost
	Lost    uint64
	Crashed uint64 // those of Permanent for which no handler was called, by WithCrashLimit
}

// counts are the figures of Stats that only grow.
type counts struct {
	// messages acknowledged or published as dead letters; not in Stats
	finished                                                                               atomic.Uint64
	succeeded, failed, snoozed, permanent, expired, panics, unsettled, left, lost, crashed atomic.Uint64
}

// Stats returns the Worker's counters and its current state. The fields are read one after the other, not at one
// moment.
func (w *Worker) Stats() Stats {
	s := Stats{
		Paused:    w.pauser.isPaused(),
		Succeeded: w.counts.succeeded.Load(),
		Failed:    w.counts.failed.Load(),
		Snoozed:   w.counts.snoozed.Load(),
		Permanent: w.counts.permanent.Load(),
		Expired:   w.counts.expired.Load(),
		Panics:    w.counts.panics.Load(),
		Unsettled: w.counts.unsettled.Load(),
		Left:      w.counts.left.Load(),
		Lost:      w.counts.lost.Load(),
		Crashed:   w.counts.crashed.Load(),
	}
	if r := w.run.Load(); r != nil {
		s.InFlight, s.Stuck = r.inFlight()
		s.Outage = r.outage.isOn()
		s.InFlight += r.outage.kept()
		s.Waiting, s.Full = r.lanes.stats()
	}
	return s
}

// who returns attributes that name the consumer, for the log.
func (w *Worker) who() []any {
	return []any{"consumer", w.consumer.Name(), "subscription", w.consumer.Subscription()}
}
