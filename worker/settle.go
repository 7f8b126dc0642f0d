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
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// ackPause is the pause before an acknowledgement that failed is tried again.
var ackPause = backoff.Exponential{Min: 100 * time.Millisecond, Max: 5 * time.Second}

// deadLetterTimeout is how long the publishing of a dead letter may take.
const deadLetterTimeout = 30 * time.Second

// classifyAll has the classifier, if there is one, look at the errors of a handler.
func (r *run) classifyAll(errs []error) {
	for i, err := range errs {
		if err != nil && r.classify != nil {
			errs[i] = r.classified(err)
		}
	}
}

// judge decides what becomes of a message whose handler returned err, as the classifier has it.
func (r *run) judge(msg pulsar.Message, err error) outcome {
	o := outcomeOf(err)
	switch {
	case o.verb == ack || o.verb == dead:
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

// settle does to a message what was decided.
func (r *run) settle(msg pulsar.Message, o outcome) {
	switch o.verb {
	case ack:
		if r.ack(msg) {
			r.counts.succeeded.Add(1)
		}
	case dead:
		r.counts.permanent.Add(1)
		r.deadLetter(msg, o)
	case nack, again:
		r.counts.failed.Add(1)
		r.nack(msg, o)
	case leave:
		r.leave(msg, "the handler failed after the drain timeout", o.err)
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

// deadLetter publishes a message to the dead letter topic. If that fails it is nacked.
func (r *run) deadLetter(msg pulsar.Message, o outcome) {
	ctx, cancel := context.WithTimeout(r.settling, deadLetterTimeout)
	defer cancel()
	ctx = publishing.Because(ctx, publishing.Permanent)
	err := r.protect(func() error { return r.consumer.DeadLetter(ctx, msg, o.err) })
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
		o.verb = o.or
		r.nack(msg, o)
	}
}

func (r *run) nack(msg pulsar.Message, o outcome) {
	err := r.protect(func() error {
		if o.verb == again {
			if d, err := r.consumer.Delivery(msg); err != nil || !d.Last {
				return r.consumer.NackWithDelay(msg, o.delay)
			}
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
	r.logger.LogAttrs(r.settling, slog.LevelWarn, "worker: a message is left to the broker",
		append(about(msg), slog.String("because", why), slog.Any("error", err))...)
}

// unsettled reports what could not be done.
func (r *run) unsettled(msg pulsar.Message, what string, err error) {
	r.counts.unsettled.Add(1)
	r.logger.LogAttrs(r.settling, slog.LevelWarn, "worker: "+what+" failed", append(about(msg), slog.Any("error", err))...)
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
