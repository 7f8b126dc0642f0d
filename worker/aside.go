package worker

import (
	"context"
	"errors"
	"slices"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/outages"
)

// This file has what is kept in an outage, and which message is tried next.

// putAside keeps messages until they are tried, or the outage is over. It reports false if it is.
func (o *outage) putAside(tasks []task) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over == nil {
		return false
	}
	for _, t := range tasks {
		t.aside = true
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

// kept is how many messages are put aside.
func (o *outage) kept() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.aside)
}

// pick returns the message to try next, and false if there is none yet. The caller is the one whose turn it is.
func (o *outage) pick() (t task, ok bool, err error) {
	open, err := o.valve.wait(o.taking)
	if err != nil {
		return t, false, err
	}
	o.mu.Lock()
	n := o.failures.Looks(o.tries)
	o.mu.Unlock()
	for fresh, more := false, true; more && n > 0; {
		if fresh, more, err = o.look(open); err != nil {
			o.lose(err)
			return t, false, err
		}
		if fresh {
			n--
		}
	}
	if o.valve.isShut() || o.taking.Err() != nil {
		return t, false, o.taking.Err()
	}
	if t, ok = o.choose(); ok {
		if _, err = o.consumer.Delivery(t.msg); errors.Is(err, redelivery.ErrClosed) { // nobody may have been receiving, who would be told
			o.lose(err)
			o.leaveAll([]task{t}, untried)
			return t, false, err
		}
	}
	return t, ok, nil
}

// look puts a message aside that has come, and reports whether it did not fail before, and whether to look at more. It waits for one if nothing is
// there to try.
func (o *outage) look(open context.Context) (fresh, more bool, err error) {
	ctx := open
	if n := o.kept(); n >= outages.Most {
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
	o.mu.Unlock()
	fits, err := o.consumer.Keep(t.msg)
	return fresh, fits || err != nil || !fresh, nil // those that failed are not to keep others from being reached
}

// probed is how often a message failed when it was tried, or -1 if it did not fail before. The caller holds mu.
func (o *outage) probed(t task) int {
	n, failed := o.tried[nameOf(t.msg)]
	if !failed && !t.kept && t.counted().RedeliveryCount() == 0 {
		return -1
	}
	return n
}

// choose takes the message out that is tried next: one that did not fail before, since that tells an outage from messages that always fail, the
// last one that came; or else the one that was tried least. It reports false if there is none, or the outage is over.
func (o *outage) choose() (t task, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	best, fewest := -1, 0
	for i, t := range o.aside {
		if n := o.probed(t); best < 0 || n < fewest || n < 0 {
			best, fewest = i, n
		}
	}
	if best < 0 || o.over == nil {
		return t, false
	}
	t = o.aside[best]
	o.aside = slices.Delete(o.aside, best, best+1)
	return t, true
}

// mayGiveBack reports whether what is kept may be given back to the broker until the next try: the pause is not short, and nothing was tried
// here more often than the broker knows.
func (o *outage) mayGiveBack() bool {
	pause := o.nextPause()
	o.mu.Lock()
	defer o.mu.Unlock()
	return (o.over != nil && pause >= outages.ShortPause || o.valve.isShut()) &&
		!slices.ContainsFunc(o.aside, func(t task) bool { return t.more > 0 })
}

// gaveBack forgets what was kept, since it is given back.
func (o *outage) gaveBack() {
	o.mu.Lock()
	aside := o.aside
	o.aside = nil
	o.mu.Unlock()
	for _, t := range aside {
		o.forget(t)
	}
}
