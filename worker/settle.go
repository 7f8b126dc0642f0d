package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// ackPause is the pause before an acknowledgement that failed is tried again.
var ackPause = backoff.Exponential{Min: 100 * time.Millisecond, Max: 5 * time.Second}

// ackTimeout is how long an acknowledgement that fails is tried again. A broker restarts within that.
const ackTimeout = time.Minute

// deadLetterTimeout is how long the publishing of a dead letter may take.
const deadLetterTimeout = 30 * time.Second

// letters says whether a dead letter takes long. Then one slot at a time waits for such an answer, or all of them would.
type letters struct {
	hang atomic.Bool
	turn chan struct{} // held by the slot that waits
}

var errLettersHang = errors.New("worker: another dead letter has not been confirmed for long, so this message is tried again")

// maxLetters is how many dead letters of a batch are published at the same time.
const maxLetters = 100

// classifyAll has the classifier, if there is one, look at the errors of a handler.
func (r *run) classifyAll(errs []error) {
	for i, err := range errs {
		if err != nil && r.classify != nil && !isCrash(err) {
			errs[i] = r.classified(err)
		}
	}
}

// judge decides what becomes of a message that is to be tried again.
func (r *run) judge(t *task, o *outcome) {
	switch {
	case !o.retries() && o.verb != snooze:
	case r.working.Err() != nil:
		o.verb = leave
	case o.verb != snooze && r.isTooOld(*t):
		o.verb, o.or, o.err, o.expired = dead, o.verb, fmt.Errorf("older than %v: %w", r.maxAge, o.err), true
	}
}

// isTooOld reports whether a message is not to be tried again if it fails. A retry is as old as the message that it is a retry of.
func (r *run) isTooOld(t task) bool {
	if r.maxAge <= 0 {
		return false
	}
	published := t.msg.PublishTime()
	if d, err := r.consumer.Delivery(t.msg); err == nil && !d.FirstPublished.IsZero() {
		published = d.FirstPublished
	}
	return time.Since(published) > r.maxAge
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
	because := publishing.Permanent
	if o.retries() {
		r.counts.failed.Add(1)
		if t.isLast(r.consumer) { // now, with its own reason, and not after Run has returned
			o.verb, o.or, because = dead, nack, publishing.MaxDeliveries
		}
	}
	if _, ok := o.err.(*CrashError); ok && because == publishing.Permanent { //nolint:errorlint // as limit made it; others' methods may panic
		because = publishing.Crashed
	}
	if o.verb == dead {
		if o.verb = r.deadLetter(publishing.Because(ctx, because), &t, o); because != publishing.MaxDeliveries {
			r.countPermanent(o)
		}
	}
	switch o.verb {
	case ack:
		if !r.ack(&t, o.began) {
			break
		}
		fallthrough
	case acked:
		r.counts.succeeded.Add(1)
		r.counts.finished.Add(1)
	case nack, again, snooze:
		switch {
		case o.verb == snooze:
			r.counts.snoozed.Add(1)
		case o.verb == nack && r.policy != nil:
			r.delayByPolicy(t, &o)
		}
		if t.lane != nil && r.diesOfTTL(ctx, &t, o) {
			break
		}
		if t.lane != nil {
			r.tried(t, o)
			r.lanes.keep(t, o)
			return
		}
		r.nack(t, o)
	case leave:
		r.leave(t, "the handler failed after the drain timeout", o.err)
	case dead:
		r.counts.finished.Add(1)
	default: // done above
	}
	r.forget(t)
}

// mayBeLetter reports whether settling a message may publish it.
func (r *run) mayBeLetter(t task, o outcome) bool {
	return o.verb == dead || o.retries() && t.isLast(r.consumer)
}

// countPermanent counts an error that was to make a dead letter: like any other if its message is to be tried again.
func (r *run) countPermanent(o outcome) {
	switch {
	case o.retries():
		r.counts.failed.Add(1)
	case o.verb == dead && o.expired:
		r.counts.expired.Add(1)
		fallthrough
	case o.verb == dead:
		r.counts.permanent.Add(1)
	}
}

// forget ends what there is of a task. If it may be one that is left, nothing of its key is to overtake it.
func (r *run) forget(t task) {
	t.beat.stop()
	if t.lane != nil && !r.ending() {
		r.lanes.done(t.msg)
		r.lanes.free(t.lane)
	}
}

// ending reports whether what is not settled by now is left to the broker.
func (r *run) ending() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost != nil || r.working.Err() != nil
}

// ack acknowledges a message. If that fails it is tried again for a while, or until the drain ends. began is when it failed with others of its
// batch, which have that time together; else zero.
func (r *run) ack(t *task, began time.Time) bool {
	for n := uint32(0); ; n++ {
		err := r.protect(func() error { return r.consumer.Ack(t.msg) })
		if err == nil {
			return true
		}
		r.unsettled(*t, "acknowledging", err)
		if n == 0 {
			if began.IsZero() {
				began = time.Now()
			}
			_ = r.renew(t) // or it would come again meanwhile; if it is not held any more, the next try tells
		}
		if time.Since(began) >= ackTimeout || !r.mayRetry(*t, ackPause.Next(n)) {
			r.leave(*t, "it was handled, but could not be acknowledged", err)
			return false
		}
	}
}

// mayRetry waits for a pause and reports whether there is a point in trying again to settle a message.
func (r *run) mayRetry(t task, pause time.Duration) bool {
	if _, err := r.consumer.Delivery(t.msg); errors.Is(err, redelivery.ErrClosed) {
		r.lose(err) // nobody might be receiving, who would be told
		return false
	}
	return sleep(r.working, pause) == nil
}

// deadLetter publishes a message to the dead letter topic, and returns dead. If it could not, it returns done where it left the message to
// the broker, and else o.or: it is to be tried again.
func (r *run) deadLetter(ctx context.Context, t *task, o outcome) verb {
	if r.letters.hang.Load() {
		select {
		case r.letters.turn <- struct{}{}:
			defer func() { <-r.letters.turn }()
		default:
			r.unsettled(*t, "publishing a dead letter", errLettersHang)
			return o.or
		}
	}
	ctx, cancel := context.WithTimeout(ctx, deadLetterTimeout)
	defer cancel()
	defer time.AfterFunc(patience, func() { r.letters.hang.Store(true) }).Stop()
	err := r.protect(func() error { return r.consumer.DeadLetter(ctx, t.counted(), o.err) })
	if err == nil {
		r.letters.hang.Store(false)
	} else {
		r.unsettled(*t, "publishing a dead letter", err)
	}
	if errors.Is(err, redelivery.ErrClosed) {
		r.lose(err)
	}
	switch {
	case err == nil, errors.Is(err, redelivery.ErrNotInFlight):
	case errors.Is(err, reconsume.ErrNotAcknowledged):
		r.ack(t, time.Time{})
	case errors.Is(err, redelivery.ErrClosed), r.ending():
		r.leave(*t, "the dead letter could not be published", err)
		return done
	default:
		return o.or
	}
	return dead
}

func (r *run) nack(t task, o outcome) {
	err := r.protect(func() error {
		if o.err == errHangs { //nolint:errorlint // as comesInVain made it
			r.consumer.NackID(t.msg.ID()) // which moves nothing to the retry topic: as another message a handler would get it beside the one that hangs
			return nil
		}
		switch o.verb {
		case snooze:
			return r.consumer.Snooze(t.msg, o.delay)
		case again:
			return r.consumer.NackWithDelayAndReason(t.msg, o.delay, o.err)
		default:
			return r.consumer.NackWithReason(t.msg, o.err)
		}
	})
	if err != nil {
		r.unsettled(t, "nacking", err)
	}
}

// leave does nothing to a message, and says so. Its ack timeout is renewed until Run returns, so that it is no attempt: of the last
// delivery that would make a dead letter.
func (r *run) leave(t task, why string, err error) {
	r.counts.left.Add(1)
	if t.lane != nil {
		r.lanes.done(t.msg)
	}
	if r.finishBatches {
		r.mu.Lock()
		r.finishing.setAside(t)
		r.mu.Unlock()
	}
	r.keepLeft(&t)
	attrs := append(about(t.counted()), slog.String("because", why))
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	r.logger.LogAttrs(r.lasting, slog.LevelWarn, "worker: a message is left to the broker", attrs...)
}

// keepLeft renews the ack timeout of a message that is left, until Run returns. A policy may call runtime.Goexit meanwhile.
func (r *run) keepLeft(t *task) {
	if r.renew(t) != nil { // which may call a policy, that calls Stats
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lasting.Err() == nil {
		r.left = append(r.left, t.beat)
	} else {
		t.beat.stop()
	}
}

// protect calls the Consumer, which calls interceptors and policies: their panic becomes an error that wraps nothing.
func (r *run) protect(call func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = errors.New(r.panicked(v).Error())
		}
	}()
	return call()
}
