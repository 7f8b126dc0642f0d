package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/attempts"
)

// Reasons why a handler's context ended; context.Cause returns them.
var (
	ErrTimeout      = errors.New("worker: the handler's timeout is over")
	ErrDrainTimeout = errors.New("worker: the drain timeout is over")
	ErrLost         = errors.New("worker: the message may be another consumer's") // with WithCancelLost
)

// errConsumerLost is the error of a Run whose Consumer was closed or has given up.
var errConsumerLost = fmt.Errorf("worker: the consumer is lost: %w", redelivery.ErrClosed)

// patience is how long a handler may take to return after its context has ended; then it counts as stuck.
const patience = 5 * time.Second

// run is the state of a Worker's Run.
type run struct {
	*Worker
	// the fields up to crashes are adjacent since they are read for each message
	taking     context.Context // for taking messages; ends when no more are taken
	working    context.Context // for handlers; ends with the drain timeout
	lasting    context.Context // for settling; ends when Run returns
	lanes      *lanes          // nil without key order
	outage     *outage         // nil without WithPauseOnFailure
	crashes    *crashes        // nil without WithCrashLimit
	stop       context.CancelFunc
	cancel     context.CancelCauseFunc
	end        context.CancelFunc
	began      time.Time
	collecting turn           // held by the slot that collects a batch
	limiting   turn           // held by the slot that takes messages under the rate limit
	alive      sync.WaitGroup // the goroutines of slots and of nackOfStuck

	rest    rest
	letters letters
	pace    atomic.Int64 // nanoseconds that a handler takes for a message, on average

	drainEnds func() time.Time // returns when the drain timeout ends; the first call starts it

	mu          sync.Mutex
	slots       []*slot
	lost        error                 // why Run ended early: errConsumerLost, or ErrStuck
	left        []pulsar.Message      // messages left to the broker, if they have an ack timeout
	leftBatches map[attempts.Key]bool // producers' batches with a message that was left to the broker
}

func newRun(w *Worker, ctx context.Context) *run {
	r := &run{Worker: w, began: time.Now(), collecting: newTurn(), limiting: newTurn(), rest: rest{turn: newTurn()},
		letters: letters{turn: newTurn()}, leftBatches: map[attempts.Key]bool{}}
	r.drainEnds = sync.OnceValue(func() time.Time { return time.Now().Add(w.drainTimeout) })
	r.taking, r.stop = context.WithCancel(ctx)
	lasting := context.WithValue(context.WithoutCancel(ctx), subscription{}, w.consumer.Subscription())
	r.lasting, r.end = context.WithCancel(lasting)
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
	for _, s := range r.allSlots() {
		r.alive.Go(s.loop)
	}
	go r.renewTimeouts()
	if r.cancelLost {
		go r.endOnLoss()
	}
	select {
	case <-r.taking.Done():
	case <-r.consumer.Done():
		r.endWith(errConsumerLost)
	}
	return r.drain()
}

// endWith makes the Run drain and return err, unless a drain has begun already.
func (r *run) endWith(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taking.Err() == nil {
		r.lost = err
		r.stop()
	}
}

// hasEnded reports whether the handlers' contexts have ended. Then the Worker keeps no message for another try.
func (r *run) hasEnded() bool { return r.working.Err() != nil }

// inFlight returns how many messages slots have, and how many slots are stuck. In a pause it counts one message for a
// slot that neither has messages nor rests: such a slot may have received a message before the pause.
func (r *run) inFlight() (messages, stuck int) {
	now := r.now()
	paused, taking := r.pauser.isPaused() && r.taking.Err() == nil, -int(r.rest.slots.Load())
	for _, s := range r.allSlots() {
		s.mu.Lock()
		messages += len(s.tasks)
		if len(s.tasks) == 0 {
			taking++
		}
		overdue := r.timeout > 0 && now-s.since >= r.overdue()
		if s.stage == handling && (overdue || s.replaced || r.lasting.Err() != nil) {
			stuck++
		}
		s.mu.Unlock()
	}
	if paused {
		messages += max(0, taking)
	}
	return messages, stuck
}

// now is the time since the run began. It does not read the wall clock, which would double its cost.
func (r *run) now() time.Duration { return time.Since(r.began) }

// overdue returns after how long a handler counts as stuck. For the longest timeouts the sum overflows.
func (r *run) overdue() time.Duration { return max(r.timeout, r.timeout+patience) }
