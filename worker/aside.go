package worker

import (
	"context"
	"slices"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/outages"
)

// This file has the messages that are set aside in an outage, and chooses the next one to try.

// putAside keeps messages until they are tried, or the outage is over. It reports false if it is.
func (o *outage) putAside(tasks []task) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over == nil {
		return false
	}
	for _, t := range tasks {
		t.aside, t.here = true, 0 // a batch of what was put aside has its local retries together
		o.aside = append(o.aside, t)
	}
	o.valve.interrupt() // whoever waits for a message to try has one now
	return true
}

// takeBack takes what was put aside, as much as a handler gets at once, when the outage is over. It reports false if that is not so.
func (o *outage) takeBack(into []task) (tasks []task, over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over != nil {
		return into, false
	}
	n, bytes := 0, int64(0)
	for n < len(o.aside) && (n == 0 || n < o.batch.MaxMessages && bytes < o.batch.MaxBytes) {
		bytes += int64(len(o.aside[n].msg.Payload()))
		n++
	}
	into = append(into, o.aside[:n]...)
	clear(o.aside[:n])
	if o.aside = o.aside[n:]; len(o.aside) == 0 {
		o.aside = nil
	}
	return into, true
}

// kept is how many messages are set aside.
func (o *outage) kept() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.aside)
}

// pick returns the message to try next, and false if there is none yet. The caller is the one whose turn it is.
func (o *outage) pick() (t task, ok bool, err error) {
	for dropped := true; dropped; { // those that are another consumer's are no try
		if err = o.lookAhead(); err != nil {
			return t, false, err
		}
		if o.valve.isShut() || o.taking.Err() != nil {
			return t, false, o.taking.Err()
		}
		for dropped = false; ; dropped = true {
			if t, ok = o.choose(); !ok {
				break
			}
			if _, err = o.unlessClosed([]task{t}); err != nil {
				return t, false, err
			}
			if len(o.stillMine([]task{t})) > 0 {
				return t, true, nil
			}
		}
	}
	return t, false, nil
}

// lookAhead puts aside what comes, to choose from.
func (o *outage) lookAhead() error {
	open, err := o.valve.wait(o.taking)
	if err != nil {
		return err
	}
	o.mu.Lock()
	n := o.state.Looks()
	o.mu.Unlock()
	fresh, more := false, true
	for looks := 0; more && n > 0 && looks < outages.Most; looks++ {
		if fresh, more, err = o.look(open); err != nil {
			o.lose(err)
			return err
		}
		if fresh {
			n--
		}
	}
	return nil
}

// look puts a message aside that has come, and reports whether it did not fail before, and whether to look at more. It waits for one if nothing is
// there to try.
func (o *outage) look(open context.Context) (fresh, more bool, err error) {
	ctx := open
	if n := o.kept(); n >= outages.Most || n > 0 && !o.hasRoom() && !o.givesBack() {
		return false, false, nil
	} else if n > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(open, takingTime)
		defer cancel()
	}
	t, err := o.receive(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return false, false, nil
	case err != nil:
		return false, false, err
	}
	_ = o.renew(&t) // if it is not held any more, settling it will tell
	t.aside = true
	o.mu.Lock()
	o.aside = append(o.aside, t)
	fresh = o.probed(t) < 0
	if o.over == nil { // it is over: whoever takes messages takes this one first
		o.valve.interrupt()
	}
	o.mu.Unlock()
	o.large = t.msg
	return fresh, o.hasRoom() || !fresh && o.givesBack(), nil // those that failed are not to keep others from being reached
}

// hasRoom reports whether the Consumer's memory limit has room for the message that was looked at last, or that is settled. The caller is the one
// whose turn it is.
func (o *outage) hasRoom() bool {
	for shed := false; o.large != nil; shed = true {
		if fits, err := o.consumer.Keep(o.large); fits || err != nil {
			o.large = nil
		} else if shed || !o.shed() {
			return false
		}
	}
	return true
}

// shed leaves messages that failed to the Consumer until the next try, all but the one to try if there are no others, and reports whether there is
// something to gain by that. Where they could be given back, the broker would count it, and where they wait for their keys they have to stay:
// then those that fail too often as probes make room.
func (o *outage) shed() bool {
	if o.lanes != nil || !o.keepsAll() {
		return false
	}
	tasks, pause := o.takeFailed()
	for _, t := range tasks {
		o.forget(t)
		_ = o.protect(func() error { return o.consumer.Snooze(t.msg, pause) }) // if it is not held any more, it comes again
	}
	return true
}

// takeFailed takes out what shed leaves to the Consumer, and says for how long.
func (o *outage) takeFailed() (failed []task, pause time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.aside = slices.DeleteFunc(o.aside, func(t task) bool {
		if o.probed(t) < 0 {
			return false
		}
		failed = append(failed, t)
		return true
	})
	if next := outages.Next(failed, o.probed); len(o.aside) == 0 && next >= 0 {
		o.aside, failed = append(o.aside, failed[next]), slices.Delete(failed, next, next+1)
	}
	if o.probed(task{msg: o.large}) >= 0 {
		o.large = nil
	}
	return failed, max(o.state.Pause(), outages.ShortPause)
}

// givesBack reports whether what is set aside goes back to the broker before the next try, as far as is known.
func (o *outage) givesBack() bool {
	o.mu.Lock()
	long := o.state.Pause() >= outages.ShortPause
	o.mu.Unlock()
	return long && o.lanes == nil && !o.keepsAll()
}

// probed is how often a message failed when it was tried, or -1 if it did not fail before. The caller holds mu.
func (o *outage) probed(t task) int {
	return o.state.Probes(nameOf(t.msg), t.kept || t.counted().RedeliveryCount() > 0)
}

// choose takes the message out that is tried next. It reports false if there is none, or the outage is over.
func (o *outage) choose() (t task, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	next := outages.Next(o.aside, o.probed)
	if next < 0 || o.over == nil {
		return t, false
	}
	t = o.aside[next]
	o.aside = slices.Delete(o.aside, next, next+1)
	return t, true
}

// mayGiveBack reports whether the messages that are set aside may go back to the broker until the next try: the pause, once it is known, is
// not short, and none of them has tries that the broker does not know of.
func (o *outage) mayGiveBack() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return (o.state.State() == outages.Open && o.state.Pause() >= outages.ShortPause || o.valve.isShut()) &&
		!slices.ContainsFunc(o.aside, func(t task) bool { return t.more > 0 })
}

// gaveBack forgets the messages that were set aside: the broker has them.
func (o *outage) gaveBack() {
	o.mu.Lock()
	aside := o.aside
	o.aside = nil
	o.mu.Unlock()
	for _, t := range aside {
		o.forget(t)
	}
}
