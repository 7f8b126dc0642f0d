package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// ackPause is the pause before an acknowledgement that failed is tried again.
var ackPause = backoff.Exponential{Min: 100 * time.Millisecond, Max: 5 * time.Second}

// deadLetterTimeout is how long the publishing of a dead letter may take.
const deadLetterTimeout = 30 * time.Second

// verdict decides what an error means.
func (r *run) verdict(err error) outcome {
	if err != nil && r.classify != nil {
		err = r.classified(err)
	}
	if err == nil {
		return outcome{verb: ack}
	}
	return outcomeOf(err)
}

// judge decides what becomes of a message that is to be tried again.
func (r *run) judge(msg pulsar.Message, o outcome) outcome {
	switch {
	case !o.retries():
	case r.working.Err() != nil:
		o.verb = leave
	case r.maxAge > 0 && time.Since(msg.PublishTime()) > r.maxAge:
		o.verb, o.or, o.err = dead, o.verb, fmt.Errorf("older than %v: %w", r.maxAge, o.err)
		r.counts.expired.Add(1)
	}
	return o
}

func (r *run) classified(err error) (class error) {
	defer func() {
		if v := recover(); v != nil {
			_ = r.panicked(v, slog.String("in", "the classifier"))
			class = err
		}
	}()
	return r.classify(err)
}

// settle does what was decided.
func (r *run) settle(ctx context.Context, t task, o outcome) {
	switch o.verb {
	case nack, again:
		r.counts.failed.Add(1)
	case dead:
		r.counts.permanent.Add(1)
	}
	if o.verb == again || o.verb == nack && t.lane != nil {
		// A nack by the policy is a dead letter too, if no delivery is left: the Consumer sees to that, and knows the reason.
		if d, err := r.consumer.Delivery(t.msg); err == nil && d.Last {
			o.verb, o.or = dead, nack
		}
	}
	if o.verb == dead && !r.deadLetter(ctx, t.msg, o.err) {
		o.verb = o.or
	}
	switch o.verb {
	case ack:
		if !r.ack(t.msg) {
			break
		}
		fallthrough
	case acked:
		r.counts.succeeded.Add(1)
	case nack, again:
		if t.lane != nil {
			r.lanes.keep(t, o)
			return
		}
		r.nack(t.msg, o)
	case leave:
		r.leave(t.msg, "the handler failed after the drain timeout", o.err)
	case held:
		return
	}
	r.forget(t)
}

// forget ends what there is of a task.
func (r *run) forget(t task) {
	t.beat.stop()
	if t.lane != nil {
		r.lanes.free(t.lane)
	}
}

// ack acknowledges a message. If that fails it is tried again until the drain ends.
func (r *run) ack(msg pulsar.Message) bool {
	for n := uint32(0); ; n++ {
		err := r.protect(func() error { return r.consumer.Ack(msg) })
		if err == nil {
			return true
		}
		r.unsettled(msg, "acknowledging", err)
		if !r.mayRetry(msg, ackPause.Next(n)) {
			r.leave(msg, "the handler is done with it, but it could not be acknowledged", err)
			return false
		}
	}
}

// mayRetry waits for a pause and reports whether there is a point in trying again to settle a message.
func (r *run) mayRetry(msg pulsar.Message, pause time.Duration) bool {
	if _, err := r.consumer.Delivery(msg); errors.Is(err, redelivery.ErrClosed) {
		r.lose(err) // nobody might be receiving, who would be told
		return false
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.working.Done():
		return false
	}
}

// deadLetter publishes a message to the dead letter topic. It reports false if it could not, and the message is to be tried again.
func (r *run) deadLetter(ctx context.Context, msg pulsar.Message, reason error) bool {
	ctx, cancel := context.WithTimeout(ctx, deadLetterTimeout)
	defer cancel()
	err := r.protect(func() error { return r.consumer.DeadLetter(ctx, msg, reason) })
	if err != nil {
		r.unsettled(msg, "publishing a dead letter", err)
	}
	switch {
	case err == nil, errors.Is(err, redelivery.ErrNotHeld):
	case errors.Is(err, reconsume.ErrNotAcknowledged):
		r.ack(msg)
	case errors.Is(err, redelivery.ErrClosed), r.working.Err() != nil:
		r.leave(msg, "the dead letter could not be published", err)
	default:
		return false
	}
	return true
}

func (r *run) nack(msg pulsar.Message, o outcome) {
	err := r.protect(func() error {
		if o.verb == again {
			return r.consumer.NackWithDelay(msg, o.delay)
		}
		return r.consumer.NackWithReason(msg, o.err)
	})
	if err != nil {
		r.unsettled(msg, "nacking", err)
	}
}

// leave does nothing to a message, and says so.
func (r *run) leave(msg pulsar.Message, why string, err error) {
	r.counts.left.Add(1)
	attrs := append(about(msg), slog.String("because", why))
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	r.logger.LogAttrs(r.lasting, slog.LevelWarn, "worker: a message is left to the broker", attrs...)
}

// unsettled reports what could not be done.
func (r *run) unsettled(msg pulsar.Message, what string, err error) {
	r.counts.unsettled.Add(1)
	r.logger.LogAttrs(r.lasting, slog.LevelWarn, "worker: "+what+" failed", append(about(msg), slog.Any("error", err))...)
}

// protect calls the Consumer, which calls interceptors and policies: a panic of theirs is an error.
func (r *run) protect(call func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = r.panicked(v)
		}
	}()
	return call()
}
