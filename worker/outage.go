package worker

import (
	"slices"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/attempts"
	"github.com/pulsar-redelivery/redelivery/internal/outages"
	"github.com/pulsar-redelivery/redelivery/internal/policies"
)

// probeLimit is how long a probe keeps other messages from being tried, if the handler has no shorter timeout.
const probeLimit = 30 * time.Second

// outage is the pause of WithPauseOnFailure. It begins when too many messages fail in a row. While it lasts, the slots
// try one message at a time, and the other messages are put aside. Package outages decides when it begins and ends, and
// which message is tried when. A nil outage never begins.
type outage struct {
	*run
	probing turn // held by the slot that waits to try a message or tries it
	// the message that look received last, if it exceeds the memory limit; guarded by probing
	unfit pulsar.Message

	mu     sync.Mutex // guards the fields below
	state  outages.Outage[attempts.Key]
	over   chan struct{} // closed when the outage is over; nil while there is none
	began  time.Time
	aside  []task // messages that are put aside: not tried at present
	change change // reports when an outage begins and ends
}

func newOutage(r *run) *outage {
	return &outage{run: r, probing: newTurn(), state: outages.New[attempts.Key](r.window, r.ratio)}
}

// current returns a channel that is closed when the outage is over; nil if there is none.
func (o *outage) current() chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.over
}

func (o *outage) isOn() bool { return o != nil && o.current() != nil }

// tries returns how many tries in the outage failed; 0 if there is no outage.
func (o *outage) tries() uint32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over == nil {
		return 0
	}
	return o.state.Tries()
}

// report notes the outcomes of a call of the handler. It reports whether the messages that failed are tried again
// without a nack: if there is an outage, and none of them failed too often as a probe.
func (o *outage) report(probe bool, tasks []task, outcomes []outcome) (keep bool) {
	o.mu.Lock()
	before := o.over
	for i, out := range outcomes {
		if out.verb != hold && !o.hasEnded() {
			o.state.Report(attemptIn(tasks[i], out, probe))
		}
	}
	switch down := o.state.State() != outages.Closed; {
	case down && before == nil:
		o.over, o.began = make(chan struct{}), time.Now()
	case !down && before != nil:
		close(o.over)
		o.over = nil
	}
	spent := func(t task) bool { return !o.state.Keeps(attempts.KeyOf(t.msg)) }
	keep = o.over != nil && !slices.ContainsFunc(tasks[:len(outcomes)], spent)
	after, began, tries := o.over, o.began, o.state.Tries()
	o.mu.Unlock()
	switch {
	case after != nil && before == nil:
		o.pauser.interrupt()
		o.notify()
	case after == nil && before != nil:
		o.notify()
	case probe && after != nil:
		o.logger.Info("worker: messages still fail", append(o.who(), "for", time.Since(began), "tries", tries)...)
	}
	return keep
}

// attemptIn describes the outcome of a message for package outages.
func attemptIn(t task, out outcome, probe bool) outages.Attempt[attempts.Key] {
	a := outages.Attempt[attempts.Key]{Message: attempts.KeyOf(t.msg), Before: t.failed || t.count() > 0, Probe: probe}
	switch {
	case out.verb == dead, out.verb == snooze:
		a.Result = outages.Unclear
	case out.fails():
		a.Result = outages.Failed
	}
	if !out.away {
		a.Asked = out.delay
	}
	return a
}

// markAway marks outcomes whose delay is longer than the next pause can be. Their messages are nacked, and the other
// messages do not wait for them.
func (o *outage) markAway(outcomes []outcome) {
	if !slices.ContainsFunc(outcomes, func(out outcome) bool { return out.verb == again }) {
		return
	}
	// without an outage, the bounds are those of the first pause, since an outage may begin now
	_, longest := policies.Bounds(o.pause, o.tries())
	for i := range outcomes {
		outcomes[i].away = outcomes[i].delay > longest
	}
}

// notify reports a change: that there is an outage, or that it is over.
func (o *outage) notify() {
	o.change.report(&o.mu, func() bool { return o.over != nil }, func(begins bool) func() {
		after, tries := time.Since(o.began), o.state.Tries()
		return func() {
			switch {
			case begins:
				o.logger.Warn("worker: most messages fail: they are tried one at a time, until one succeeds",
					append(o.who(), "window", o.window, "ratio", o.ratio)...)
			case !o.hasEnded():
				o.logger.Warn("worker: a message succeeded, the outage is over",
					append(o.who(), "after", after, "tries", tries+1)...)
			}
			o.notifyPaused(begins, PauseOutage)
		}
	})
}

// abandon ends an outage at the end of a drain, and leaves its messages to the broker.
func (o *outage) abandon() {
	if o == nil {
		return
	}
	o.mu.Lock()
	over, aside := o.over, o.aside
	o.over, o.aside = nil, nil
	o.state.Close()
	o.mu.Unlock()
	o.leaveAll(aside, untried)
	if over != nil {
		close(over)
		o.notify()
	}
}

// putAside keeps messages until they are tried, or until the outage is over. If the outage is already over, putAside
// keeps nothing and reports false.
func (o *outage) putAside(tasks []task) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over == nil {
		return false
	}
	for _, t := range tasks {
		// retries is the same for all messages of a call, and the next call may have others beside these
		t.waited, t.retries = true, 0
		o.aside = append(o.aside, t)
	}
	o.pauser.interrupt() // a slot that waits for a message to try has one now
	return true
}

// takeBack takes messages that were put aside, as many as a handler gets in one call. While the outage lasts it takes
// none, and over is false.
func (o *outage) takeBack() (tasks []task, over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over != nil {
		return nil, false
	}
	n, bytes := 0, int64(0)
	for n < len(o.aside) && (n == 0 || n < o.batch.MaxMessages && bytes < o.batch.MaxBytes) {
		bytes += int64(len(o.aside[n].msg.Payload()))
		n++
	}
	tasks, o.aside = o.aside[:n:n], o.aside[n:]
	if len(o.aside) == 0 {
		o.aside = nil
	}
	return tasks, true
}

// kept is how many messages are put aside.
func (o *outage) kept() int {
	if o == nil {
		return 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.aside)
}

// messages returns the messages that are put aside.
func (o *outage) messages() (msgs []pulsar.Message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.aside {
		msgs = append(msgs, o.aside[i].msg)
	}
	return msgs
}

// mayGiveBack reports whether the messages that are put aside may go back to the broker until the next try. Pause must
// be in effect, or the pause until the next try must be known and long enough. No message may have tries that the
// Consumer has not counted.
func (o *outage) mayGiveBack() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return (o.state.State() == outages.Open && o.state.Pause() >= outages.ShortPause || o.pauser.isAsked()) &&
		!slices.ContainsFunc(o.aside, func(t task) bool { return t.tries > 0 })
}

// gaveBack forgets the messages that were put aside: the broker has them.
func (o *outage) gaveBack() {
	o.mu.Lock()
	aside := o.aside
	o.aside = nil
	o.mu.Unlock()
	for _, t := range aside {
		o.forget(&t)
	}
}
