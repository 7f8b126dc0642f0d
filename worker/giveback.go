package worker

import (
	"errors"
	"sync/atomic"

	"github.com/pulsar-redelivery/redelivery"
)

// rest counts the slots that rest. A slot rests if it has no messages and waits: for the end of a pause, for the rate
// limit, or in an outage. When all slots rest and no handler is stuck, the Consumer gives the prefetched messages and
// those put aside back to the broker, so that other consumers get them.
type rest struct {
	turn  turn         // held to change the fields below, and while the Consumer gives back, which takes long
	slots atomic.Int32 // how many slots rest
	never bool         // the Consumer cannot give anything back
}

// resting notes that a slot rests until it calls ends.
func (r *run) resting() (ends func()) {
	r.rest.turn.lock()
	defer r.rest.turn.unlock()
	r.rest.slots.Add(1)
	r.giveBack()
	return func() {
		r.rest.turn.lock()
		defer r.rest.turn.unlock()
		r.rest.slots.Add(-1)
	}
}

// giveBackAtRest calls giveBack for a slot that rests already. ends does nothing: the slot goes on resting.
func (r *run) giveBackAtRest() (ends func()) {
	r.rest.turn.lock()
	defer r.rest.turn.unlock()
	r.giveBack()
	return func() {}
}

// neverGivesBack reports whether the Consumer is known to give nothing back.
func (r *run) neverGivesBack() bool {
	r.rest.turn.lock()
	defer r.rest.turn.unlock()
	return r.rest.never
}

// mayGiveBack reports whether all slots rest, and will probably rest for long. It returns false if a handler is stuck,
// since the broker would deliver that handler's message again. It returns false if messages wait for their keys, since
// their order and the counts of their tries would be lost. The caller has the turn.
func (r *run) mayGiveBack() bool {
	if int(r.rest.slots.Load()) < r.concurrency || r.rest.never || r.taking.Err() != nil {
		return false
	}
	held, _ := r.inFlight()
	waiting, _ := r.lanes.stats()
	if held > 0 || waiting > 0 {
		return false
	}
	if r.outage != nil {
		return r.outage.mayGiveBack()
	}
	return r.pauser.isAsked() // else the slots wait for the rate limit, or for the end of a PauseFor
}

// giveBack gives the Consumer's messages back. The caller has the turn.
func (r *run) giveBack() {
	if !r.mayGiveBack() {
		return
	}
	switch err := r.consumer.GiveBack(); {
	case err == nil:
		if r.outage != nil {
			r.outage.gaveBack()
		}
		if r.pauser.isAsked() { // else it is an outage, which gives back before each try
			r.logger.Info("worker: prefetched messages were returned to the broker", r.who()...)
		}
	case errors.Is(err, errors.ErrUnsupported):
		r.rest.never = true
	case errors.Is(err, redelivery.ErrClosed): // the Run ends
	default:
		r.logger.Warn("worker: returning prefetched messages to the broker failed", append(r.who(), "error", err)...)
	}
}
