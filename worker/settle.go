package worker

import (
	"context"
	"errors"
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

// judge decides what becomes of a message whose handler returned err.
func (r *run) judge(err error) outcome {
	if err != nil && r.classify != nil {
		err = r.classified(err)
	}
	o := outcomeOf(err)
	if (o.verb == nack || o.verb == again) && r.working.Err() != nil {
		o.verb = leave
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
		r.ack(msg)
	case dead:
		r.counts.permanent.Add(1)
		r.deadLetter(msg, o.err)
	case nack, again:
		r.counts.failed.Add(1)
		r.nack(msg, o)
	case leave:
		r.leave(msg, "the handler failed after the drain timeout", o.err)
	}
}

// ack acknowledges a message. If that fails it is tried again until the drain ends.
func (r *run) ack(msg pulsar.Message) {
	for n := uint32(0); ; n++ {
		err := r.protect(func() error { return r.consumer.Ack(msg) })
		if err == nil {
			r.counts.succeeded.Add(1)
			return
		}
		r.unsettled(msg, "acknowledging", err)
		if !r.mayRetry(msg, ackPause.Next(n)) {
			r.leave(msg, "the handler succeeded, but the message could not be acknowledged", err)
			return
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
func (r *run) deadLetter(msg pulsar.Message, reason error) {
	ctx, cancel := context.WithTimeout(r.settling, deadLetterTimeout)
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
		r.nack(msg, outcome{verb: nack, err: reason})
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
