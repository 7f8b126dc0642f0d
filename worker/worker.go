package worker

import (
	"context"
	"sync/atomic"

	"github.com/pulsar-redelivery/redelivery"
)

// Worker takes messages from a Consumer, calls a handler for each, and settles the message by the handler's error. New
// and NewBatch make a Worker. It is safe for concurrent use.
type Worker struct {
	consumer *redelivery.Consumer
	// calls the handler, sets the errors of the outcomes, and reports whether one error is for all messages
	handle func(context.Context, []task, []outcome) (whole bool)
	batch  Batch // of one message if there is a Handler
	pauser pauser
	settings
	counts  counts
	repeats repeats

	selfSettled selfSettled
	run         atomic.Pointer[run] // nil until Run
}

// New returns a Worker that calls handler for each message of consumer. If consumer or handler is nil or an option is
// not allowed, the error satisfies errors.Is with redelivery.ErrInvalidOption.
//
// Only the Worker may receive from consumer and call redelivery.Consumer.GiveBack. After a GiveBack by other code, the
// handlers' messages cannot be acknowledged until the Worker receives again. If all handlers' messages wait to be
// acknowledged, it receives again after a minute. The caller closes consumer after Run has returned.
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
	w.handle = func(ctx context.Context, tasks []task, outcomes []outcome) bool {
		outcomes[0].err = chained(ctx, tasks[0].counted())
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
	w := &Worker{settings: s, consumer: consumer, batch: Batch{MaxMessages: 1},
		selfSettled: selfSettled{loss: consumer.NextLoss()}}
	w.repeats.other = func(more int) {
		w.logger.Warn("worker: more failures of other kinds", append(w.who(), "failures", more)...)
	}
	return w, nil
}

// Run takes and handles messages until ctx is done or the Consumer is lost: closed, or given up by pulsar-client-go
// after MaxReconnectToBroker attempts. Then it takes no more messages and drains: running handlers go on until the
// drain timeout, and then their contexts end. If a handler returns nil or Permanent after its context ended, its
// message is still settled. After any other error the message is left to the broker, which delivers it again when the
// Consumer is closed.
//
// Run returns when all handlers have returned: nil if ctx is done, and an error that wraps redelivery.ErrClosed if the
// Consumer is lost. It waits for at most five seconds after the handlers' contexts ended. Then it returns an error that
// names the messages of the handlers that did not return. Run may be called once; a second call returns an error. Until
// Run has returned, Run of another Worker of the same Consumer returns an error that satisfies errors.Is with
// redelivery.ErrInvalidOption. A nil ctx is never done.
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

// Pause stops the Worker from taking messages until Resume. Messages taken before are still handled; with WithKeyOrder,
// messages that wait for their keys wait until Resume. When all handlers have returned and no message waits for its
// key, the Worker returns prefetched messages and those that wait for redelivery to the broker, if the Consumer can do
// that (redelivery.Consumer.GiveBack): without a log of attempts, other consumers get nacked messages at once. Pause
// may be called before Run. A second Pause does nothing. When Run returns, the pause ends, and Pause no longer has an
// effect.
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
	Paused bool // from Pause until Resume or the end of Run, and during a PauseFor
	// in an outage (WithPauseOnFailure) the Worker tries one message at a time until one succeeds; if it has no message
	// to try, it waits for one
	Outage bool

	// messages being collected for a batch, handled or settled, or held in an outage: at most WithConcurrency messages
	// or batches, plus those of stuck handlers, plus 1,000 messages in an outage; after Pause, 0 means that no handler
	// is called before Resume
	InFlight int
	Stuck    int // handlers that did not return within five seconds after their context ended
	Waiting  int // with WithKeyOrder: messages that wait for earlier ones of their keys, or for another try
	// the waiting messages reached the Consumer's memory limit: the Worker takes no more until one of them is done
	Full bool

	// messages acknowledged, and those that became dead letters by an ack timeout while their handler succeeded
	Succeeded uint64
	// errors of handlers, except: errors counted in Permanent, errors after the drain timeout, errors in an outage that
	// count as no attempt (WithPauseOnFailure), the error of a batch that is then halved, and errors that a local retry
	// follows
	Failed  uint64
	Snoozed uint64 // how many times handlers returned Snooze or PauseFor
	// errors without a retry: Permanent, and any error of a message past WithMaxAge; if the dead letter cannot be
	// published, the error counts in Failed instead
	Permanent uint64
	Expired   uint64 // the errors in Permanent of messages past WithMaxAge
	Panics    uint64 // of handlers, middleware, and methods of their errors
	Unsettled uint64 // failed attempts to acknowledge, nack, or publish a dead letter
	// messages left unsettled to the broker or to the Consumer: by a drain, or because they could not be acknowledged
	Left uint64
	// messages dropped before their handler was called, because they may belong to another consumer:
	// redelivery.Observer.Lost
	Lost    uint64
	Crashed uint64 // messages for which WithCrashLimit prevented a call of the handler; they count in Permanent, too
}

// counts has the figures of Stats that only grow.
type counts struct {
	// messages published as dead letters; not in Stats
	buried                                                                                 atomic.Uint64
	succeeded, failed, snoozed, permanent, expired, panics, unsettled, left, lost, crashed atomic.Uint64
}

// finished is how many messages were acknowledged or published as dead letters.
func (c *counts) finished() uint64 { return c.succeeded.Load() + c.buried.Load() }

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
