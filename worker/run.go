package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pulsar-redelivery/redelivery"
)

// Reasons why a handler's context ended; context.Cause returns them.
var (
	ErrTimeout      = errors.New("worker: the handler's timeout is over")
	ErrDrainTimeout = errors.New("worker: the drain timeout is over")
	ErrLost         = errors.New("worker: the message may be another consumer's") // with WithCancelLost
)

// patience is how long a handler may take to return after its context has ended, before it counts as stuck.
const patience = 5 * time.Second

// run is the one Run of a Worker.
type run struct {
	*Worker
	began      time.Time
	taking     context.Context // ends when no more is to be taken
	stop       context.CancelFunc
	working    context.Context // of the handlers; ends with the drain timeout
	cancel     context.CancelCauseFunc
	lasting    context.Context // of settling; ends when Run returns
	end        context.CancelFunc
	lanes      *lanes         // nil without key order
	outage     *outage        // nil without WithPauseOnFailure
	crashes    *crashes       // nil without WithCrashLimit
	collecting chan struct{}  // held by the slot that collects a batch
	limiting   chan struct{}  // held by the slot that takes what waits for the rate limit
	alive      sync.WaitGroup // the goroutines of slots, and of what they leave behind

	rest    rest
	letters letters
	pace    atomic.Int64 // nanoseconds that a slot takes for a message

	mu        sync.Mutex
	slots     []*slot
	lost      error        // the Consumer's, or ErrStuck
	left      []*heartbeat // of the messages that are left
	finishing finishing
}

func newRun(w *Worker, ctx context.Context) *run {
	r := &run{Worker: w, began: time.Now(), collecting: make(chan struct{}, 1), limiting: make(chan struct{}, 1), rest: rest{turn: make(chan struct{}, 1)},
		letters: letters{turn: make(chan struct{}, 1)}}
	r.taking, r.stop = context.WithCancel(ctx)
	r.lasting, r.end = context.WithCancel(context.WithValue(context.WithoutCancel(ctx), subscription{}, w.consumer.Subscription()))
	r.working, r.cancel = context.WithCancelCause(r.lasting)
	if w.keyOrder {
		r.lanes = newLanes(r)
	}
	if w.window > 0 {
		r.outage = newOutage(r)
	}
	if w.crashLimit > 0 {
		r.crashes = newCrashes(r)
	}
	for range w.concurrency {
		r.slots = append(r.slots, &slot{run: r})
	}
	return r
}

func (r *run) run() error {
	for _, s := range r.all() {
		r.alive.Go(s.loop)
	}
	if r.cancelLost {
		go r.endOnLoss()
	}
	<-r.taking.Done()
	before := r.counts.finished.Load()
	n, _ := r.inFlight()
	if r.outage != nil {
		n += r.outage.kept()
	}
	r.logger.Info("worker: draining", append(r.who(), "in_flight", n, "timeout", r.drainTimeout, "arriving", r.consumer.Stats().Arriving)...)
	ended := make(chan struct{})
	go func() {
		r.alive.Wait()
		close(ended)
	}()
	if !within(r.drainTimeout, ended) {
		n, _ := r.inFlight()
		r.logger.Warn("worker: the drain timeout is over, the handlers' contexts end", append(r.who(), "in_flight", n)...)
		r.cancel(ErrDrainTimeout)
		within(patience, ended)
	}
	r.cancel(nil)
	if r.lanes != nil {
		r.lanes.abandon()
	}
	if r.outage != nil {
		r.outage.abandon()
	}
	r.valve.end()
	r.tellAsked()
	r.tellPausedFor()
	stuck := r.stuck()
	r.logStopped(r.counts.finished.Load()-before, len(stuck))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end()
	for _, beat := range r.left {
		beat.stop()
	}
	return errors.Join(append(stuck, r.lost)...)
}

// within waits for done, but no longer than d.
func within(d time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// take takes what a slot is to handle next, nothing in an outage. Its error says that there is to be no more.
func (s *slot) take(into []task) ([]task, error) {
	for {
		open, err := s.valve.waitAnd(s.taking, s.resting)
		if err != nil {
			return s.takeToFinish(into)
		}
		if s.outage != nil {
			if tasks, over := s.outage.takeBack(into); !over || len(tasks) > 0 {
				return s.unlessClosed(tasks)
			}
		}
		tasks, err := s.some(open, into)
		switch {
		case err == nil:
			return tasks, nil
		case open.Err() == nil:
			s.lose(err)
			return nil, err
		}
	}
}

// some takes a message, or a batch of them.
func (s *slot) some(ctx context.Context, into []task) ([]task, error) {
	if s.batch != (Batch{}) {
		return s.collect(ctx, into)
	}
	t, err := s.next(ctx)
	return append(into, t), err
}

// next takes a message, in a drain one of a batch that was begun.
func (s *slot) next(ctx context.Context) (task, error) {
	if s.finishes {
		return s.nextToFinish(ctx)
	}
	return s.receive(ctx)
}

func (r *run) receive(ctx context.Context) (task, error) {
	if r.lanes != nil {
		return r.lanes.next(ctx)
	}
	for {
		msg, err := r.consumer.Receive(ctx)
		if t := (task{msg: msg}); err != nil || !r.isAtWork(t) {
			return t, err
		}
	}
}

// lose ends the Run because the Consumer is of no use any more.
func (r *run) lose(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost == nil && r.taking.Err() == nil {
		r.lost = fmt.Errorf("worker: the consumer is lost: %w", err)
		r.stop()
	}
}

// ifClosed returns an error if the Consumer of a message that was kept is closed, and ends the Run: nobody may have been receiving, who would be
// told.
func (r *run) ifClosed(t task) error {
	if _, err := r.consumer.Delivery(t.msg); errors.Is(err, redelivery.ErrClosed) {
		r.lose(err)
		return err
	}
	return nil
}

// unlessClosed returns messages that were kept, or leaves them to the broker if the Consumer is closed.
func (r *run) unlessClosed(tasks []task) ([]task, error) {
	if len(tasks) == 0 {
		return nil, nil
	}
	if err := r.ifClosed(tasks[0]); err != nil {
		r.leaveAll(tasks, untried)
		return nil, err
	}
	return tasks, nil
}

// inFlight counts the messages that slots have, and the slots that are stuck.
func (r *run) inFlight() (messages, stuck int) {
	now := r.now()
	for _, s := range r.all() {
		s.mu.Lock()
		messages += len(s.tasks)
		overdue := r.timeout > 0 && now-s.since >= r.overdue()
		if s.stage == handling && (overdue || s.lost || r.lasting.Err() != nil) {
			stuck++
		}
		s.mu.Unlock()
	}
	return messages, stuck
}

// now is the time since the run began. The wall clock is not read, which takes as long again.
func (r *run) now() time.Duration { return time.Since(r.began) }

// overdue is how long a handler may take before it counts as stuck. The longest timeout has no room for patience.
func (r *run) overdue() time.Duration { return max(r.timeout, r.timeout+patience) }

// stuck has an error for each slot that did not end.
func (r *run) stuck() []error {
	var errs []error
	for _, s := range r.all() {
		s.mu.Lock()
		switch s.stage {
		case handling:
			if r.timeout == 0 || r.now()-s.since < r.overdue() { // else it was logged then
				r.logStuck(s.name, about(s.tasks[0].counted()))
			}
			errs = append(errs, fmt.Errorf("worker: a handler did not return within %v of the end of its context: %v, for %v",
				patience, s.names(), r.now()-s.since))
		case settling:
			errs = append(errs, fmt.Errorf("worker: handled, but not settled yet: %v", s.names()))
		default: // idle
		}
		s.mu.Unlock()
	}
	return errs
}
