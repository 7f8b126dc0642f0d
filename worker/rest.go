package worker

import (
	"errors"

	"github.com/pulsar-redelivery/redelivery"
)

// rest counts the slots that have nothing and wait for the end of a pause, or in an outage. When all do, and no handler is stuck, what the Consumer
// has prefetched is given back to the broker, with what is put aside, so that other consumers get it.
type rest struct {
	turn  chan struct{} // held by whoever reads or changes what follows; also while it is given back, which takes a while
	slots int
	never bool // it cannot be
}

// resting notes that a slot waits for the end of a pause, or in an outage, until it calls what is returned.
func (r *run) resting() (ends func()) {
	r.rest.turn <- struct{}{}
	defer func() { <-r.rest.turn }()
	r.rest.slots++
	r.giveBack()
	return func() {
		r.rest.turn <- struct{}{}
		defer func() { <-r.rest.turn }()
		r.rest.slots--
	}
}

// giveBackAtRest is giveBack for a slot that rests already.
func (r *run) giveBackAtRest() (after func()) {
	r.rest.turn <- struct{}{}
	defer func() { <-r.rest.turn }()
	r.giveBack()
	return func() {}
}

// keepsAll reports whether the Consumer is known to give nothing back.
func (r *run) keepsAll() bool {
	r.rest.turn <- struct{}{}
	defer func() { <-r.rest.turn }()
	return r.rest.never
}

// giveBack gives back what the Consumer has, if all slots rest. What a handler has that is stuck would come again while it is at work. Messages
// that wait for their keys are kept: their order, and how often they were tried, would be lost. The caller holds rest.turn.
func (r *run) giveBack() {
	if r.rest.slots < r.concurrency {
		return
	}
	mayGiveBack := r.valve.isAsked() // else the slots wait behind a rate limit
	if r.outage != nil {
		mayGiveBack = r.outage.mayGiveBack()
	}
	if has, _ := r.inFlight(); has > 0 || !mayGiveBack || r.rest.never || r.taking.Err() != nil || r.lanes != nil && !r.lanes.isEmpty() {
		return
	}
	err := r.protect(r.consumer.GiveBack)
	if err == nil && r.outage != nil {
		r.outage.gaveBack()
	}
	switch {
	case err == nil && !r.valve.isAsked(): // in an outage, each time
	case err == nil:
		r.logger.Info("worker: prefetched messages go back to the broker", r.who()...)
	case errors.Is(err, errors.ErrUnsupported):
		r.rest.never = true
	case errors.Is(err, redelivery.ErrClosed):
		r.lose(err)
	default:
		r.logger.Warn("worker: returning prefetched messages to the broker failed", append(r.who(), "error", err)...)
	}
}
