package worker

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/attempts"
)

// In this file, a drain finishes the producers' batches that the Worker has begun. A broker without batch-index
// acknowledgements would send a partly acknowledged batch again as a whole.

// batchOf returns a key that the messages of a producer's batch have in common.
func batchOf(msg pulsar.Message) attempts.Key {
	k := attempts.KeyOf(msg)
	k.Index = 0
	return k
}

var errNothingToFinish = errors.New("worker: no begun batch is left")

// takePoll is how long a slot waits for a message of a batch. Then it checks whether another slot got the last message.
const takePoll = 20 * time.Millisecond

// takeToFinish takes messages of batches that were begun, as many as the handler gets in one call.
func (s *slot) takeToFinish() error {
	if !s.finishBatches || s.pauser.isAsked() || s.outage.isOn() {
		return errNothingToFinish
	}
	return s.takeBatch(s.working, (*run).nextToFinish)
}

// nextToFinish takes a message of a batch that was begun.
func (r *run) nextToFinish(ctx context.Context) (task, error) {
	for began := time.Now(); time.Since(began) < patience; {
		if !r.hasToFinish() {
			return task{}, errNothingToFinish
		}
		short, cancel := context.WithTimeout(ctx, takePoll)
		t, err := r.receive(short)
		cancel()
		switch {
		case err == nil && r.isBegun(t):
			return t, nil
		case err == nil: // the batch was not begun, or another of its messages was left: it comes again
			r.counts.left.Add(1)
			r.keepLeft(t.msg)
		case ctx.Err() != nil || short.Err() == nil:
			return task{}, err
		}
	}
	return task{}, errNothingToFinish
}

// isBegun reports whether a message's batch was begun, and none of its messages was left to the broker.
func (r *run) isBegun(t task) bool {
	d, err := r.consumer.Delivery(t.msg)
	r.mu.Lock()
	defer r.mu.Unlock()
	return err == nil && d.Begun && !r.leftBatches[batchOf(t.msg)]
}

// hasToFinish reports whether messages are prefetched or could be taken from the lanes now, and there is time for all
// of these. Without time for all, handling some would only make more handled messages come again.
func (r *run) hasToFinish() bool {
	n := r.consumer.Stats().Arriving + r.lanes.readyNow()
	return n > 0 && r.isInTime(n)
}

// mayFinish reports whether a slot may handle its messages in a drain: their batches were begun, and there is time for
// them.
func (r *run) mayFinish(tasks []task) bool {
	return r.finishBatches && !slices.ContainsFunc(tasks, func(t task) bool { return !r.isBegun(t) }) &&
		r.isInTime(len(tasks)+r.consumer.Stats().Arriving)
}

// isInTime reports whether there is time for n messages before the drain timeout is over.
func (r *run) isInTime(n int) bool {
	needs := time.Duration(n) * time.Duration(r.pace.Load()) / time.Duration(r.concurrency)
	if r.limiter != nil {
		needs = max(needs, time.Duration(min(float64(math.MaxInt32),
			float64(n)/float64(r.limiter.Limit()))*float64(time.Second)))
	}
	late := time.Now().Add(needs).After(r.drainEnds())
	if late && r.repeats.first("late", nil) {
		r.logger.LogAttrs(r.lasting, slog.LevelWarn,
			"worker: the rest of the batches cannot be handled within the drain timeout",
			slog.Int("messages", n), slog.Duration("takes", needs))
	}
	return !late
}

// paced updates pace after a call of a handler with n messages.
func (r *run) paced(took time.Duration, n int) {
	before, now := r.pace.Load(), int64(took)/int64(max(1, n))
	if before > 0 {
		now = before + (now-before)/8
	}
	r.pace.Store(now)
}
