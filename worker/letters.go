package worker

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// deadLetterTimeout is how long the publishing of a dead letter may take.
const deadLetterTimeout = 30 * time.Second

// letters notes whether the dead letter topic hangs. While it does, only one slot at a time publishes, so that the
// other slots do not wait.
type letters struct {
	hang atomic.Bool // a publication took longer than patience, and none has succeeded since
	turn turn        // held by the slot that publishes while hang is set
}

var errLettersHang = errors.New("worker: the broker has not confirmed another dead letter within 5s, so this message " +
	"is tried again")

// deadLetter publishes a message to the dead letter topic, and returns dead. If publishing fails, it returns o.or, so
// that the message is tried again. But if the Run is ending, it leaves the message to the broker and returns done.
func (r *run) deadLetter(ctx context.Context, t *task, o outcome) verb {
	if r.letters.hang.Load() {
		if !r.letters.turn.tryLock() {
			r.unsettled(*t, "publishing a dead letter", errLettersHang)
			return o.or
		}
		defer r.letters.turn.unlock()
	}
	ctx, cancel := context.WithTimeout(publishing.Because(ctx, reasonFor(o)), deadLetterTimeout)
	defer cancel()
	hangs := make(chan struct{})
	late := time.AfterFunc(patience, func() {
		r.letters.hang.Store(true)
		close(hangs)
	})
	err := r.consumer.DeadLetter(ctx, t.counted(), o.err)
	if !late.Stop() {
		<-hangs // otherwise hang might be set after a success
	}
	if err == nil || errors.Is(err, reconsume.ErrNotAcknowledged) {
		r.letters.hang.Store(false)
	}
	if err == nil {
		return dead
	}
	r.unsettled(*t, "publishing a dead letter", err)
	switch {
	case errors.Is(err, redelivery.ErrNotInFlight):
		return dead
	case errors.Is(err, reconsume.ErrNotAcknowledged):
		r.ack(t, time.Time{})
		return dead
	case r.ending():
		r.leave(*t, "the dead letter could not be published", err)
		return done
	default:
		return o.or
	}
}

func reasonFor(o outcome) string {
	if o.because == expired {
		return publishing.Permanent
	}
	return o.because
}

// diesOfTTL publishes a message with a key as a dead letter if the broker would delete it before its next try, and
// reports whether the message was published or left to the broker. For messages without a key the Consumer does this.
func (r *run) diesOfTTL(ctx context.Context, t *task, o outcome) bool {
	delay := o.delay
	if o.verb == nack {
		d, err := r.consumer.Delivery(t.counted())
		if err != nil {
			return false
		}
		delay = d.NackDelay
	}
	if !publishing.OutlivesTTL(t.msg.PublishTime(), r.consumer.Options().DeadBeforeTTL, delay) {
		return false
	}
	o.or, o.because = o.verb, publishing.TTL
	v := r.deadLetter(ctx, t, o)
	if v == dead {
		r.counts.buried.Add(1)
	}
	return v == dead || v == done
}

// add counts the outcome of a message whose handler did not succeed. The caller has published its dead letter, if there
// is one. If that failed, the verb is no longer dead, and the message counts as after any other error.
func (c *counts) add(o *outcome) {
	if o.verb == dead {
		c.buried.Add(1)
	}
	switch {
	case o.fails(), o.because == publishing.MaxDeliveries:
		c.failed.Add(1)
	case o.verb == dead:
		c.permanent.Add(1)
		if o.because == expired {
			c.expired.Add(1)
		}
	}
}
