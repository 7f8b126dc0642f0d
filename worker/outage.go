package worker

import (
	"slices"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/outages"
	"github.com/pulsar-redelivery/redelivery/internal/policies"
)

// name tells a message from others, at each of its deliveries.
type name struct {
	topic         string
	ledger, entry int64
	index         int32
}

func nameOf(msg pulsar.Message) name {
	id := msg.ID()
	return name{topic: msg.Topic(), ledger: id.LedgerID(), entry: id.EntryID(), index: id.BatchIdx()}
}

// probeLimit is how long a message that is tried keeps others from being tried, if its handler has no shorter timeout.
const probeLimit = 30 * time.Second

// outage begins when too many messages fail. As long as it lasts the slots try one message at a time; the others are put aside.
type outage struct {
	*run
	probing chan struct{}  // held by the slot that tries its messages
	large   pulsar.Message // the one that was looked at last, if there was no room for it; whose turn it is guards it

	mu    sync.Mutex // guards what follows
	state outages.Outage[name]
	over  chan struct{} // closed when the outage is over; nil while there is none
	began time.Time
	aside []task // messages that are set aside: not tried at present

	abandoned bool   // since Run ended
	notice    notice // that there is one
}

func newOutage(r *run) *outage {
	return &outage{run: r, probing: make(chan struct{}, 1), state: outages.New[name](r.window, r.ratio)}
}

// current returns a channel that is closed when the outage is over; nil if there is none.
func (o *outage) current() chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.over
}

// wait waits until there is no outage, or it is the caller's turn to try a message, after a pause; then the caller receives from probing
// when the next slot may try. Its error says that nothing is to be tried any more.
func (o *outage) wait() (probe bool, err error) {
	defer o.resting()()
	for {
		over := o.current()
		if over == nil {
			_, err := o.valve.wait(o.taking)
			return false, err
		}
		select {
		case o.probing <- struct{}{}:
		case <-over:
			continue
		case <-o.taking.Done():
			return false, o.taking.Err()
		}
		if o.tryNext(over) {
			return true, nil
		}
	}
}

// tryNext waits for the caller's turn to try a message, and reports whether it came. If not, or if the policy calls runtime.Goexit, another
// slot may try.
func (o *outage) tryNext(over chan struct{}) (mine bool) {
	defer func() {
		if !mine {
			<-o.probing
		}
	}()
	mine = o.current() == over && o.waitToTry(over) == nil && o.current() == over // another outage has a pause of its own
	return mine
}

// waitToTry waits for the pause before the next try, or the end of the outage, and while the Worker is paused.
func (o *outage) waitToTry(over chan struct{}) error {
	timer := time.NewTimer(o.nextPause())
	defer timer.Stop()
	o.giveBackAtRest()
	select {
	case <-timer.C:
	case <-over:
	case <-o.taking.Done():
	}
	_, err := o.valve.waitAnd(o.taking, o.giveBackAtRest)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.state.Try()
	return err
}

// nextPause is how long to wait before the next try.
func (o *outage) nextPause() (pause time.Duration) {
	tries := o.tries()
	if err := o.protect(func() error { pause = o.pause.Next(tries); return nil }); err != nil {
		pause = time.Minute
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.state.Wait(pause)
}

// tries is how many tries of the outage failed; 0 if there is none.
func (o *outage) tries() uint32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over == nil {
		return 0
	}
	return o.state.Tries()
}

// report notes how the handler did. It reports whether what failed is to be tried again
// without being nacked: there is an outage, and it is no probe that failed too often.
func (o *outage) report(probe bool, tasks []task, outcomes []outcome) (keep bool) {
	o.mu.Lock()
	before := o.over
	for i, out := range outcomes {
		if out.verb != held && !o.abandoned {
			o.state.Report(attemptOf(tasks[i], out, probe))
		}
	}
	switch down := o.state.State() != outages.Closed; {
	case down && before == nil:
		o.over, o.began = make(chan struct{}), time.Now()
	case !down && before != nil:
		close(o.over)
		o.over = nil
	}
	keep = o.over != nil && !slices.ContainsFunc(tasks[:len(outcomes)], func(t task) bool { return !o.state.Keeps(nameOf(t.msg)) })
	after, began, tries := o.over, o.began, o.state.Tries()
	o.mu.Unlock()
	switch {
	case after != nil && before == nil:
		o.valve.interrupt()
		o.tell()
	case after == nil && before != nil:
		o.tell()
	case probe && after != nil:
		o.logger.Info("worker: messages still fail", append(o.who(), "for", time.Since(began), "tries", tries)...)
	}
	return keep
}

// attemptOf is what an outcome says about an outage.
func attemptOf(t task, out outcome, probe bool) outages.Attempt[name] {
	a := outages.Attempt[name]{Message: nameOf(t.msg), Before: t.kept || t.counted().RedeliveryCount() > 0, Probe: probe}
	switch {
	case out.verb == dead, out.verb == snooze:
		a.Result = outages.Unclear
	case out.retries():
		a.Result = outages.Failed
	}
	if !out.away {
		a.Asked = out.delay
	}
	return a
}

// tell tells whether there is an outage, if that changed.
func (o *outage) tell() {
	o.notice.tell(&o.mu, func() bool { return o.over != nil }, func(begins bool) func() {
		after, tries, abandoned := time.Since(o.began), o.state.Tries(), o.abandoned
		return func() {
			switch {
			case begins:
				o.logger.Warn("worker: most messages fail: they are tried one at a time, until one succeeds",
					append(o.who(), "window", o.window, "ratio", o.ratio)...)
			case !abandoned:
				o.logger.Warn("worker: a message succeeded, the outage is over", append(o.who(), "after", after, "tries", tries+1)...)
			}
			o.tellPaused(begins, PauseOutage)
		}
	})
}

// sendAway marks messages whose delay is longer than the next pause can be: they are nacked, and the others do not wait for them.
func (o *outage) sendAway(outcomes []outcome) {
	if !slices.ContainsFunc(outcomes, func(out outcome) bool { return out.verb == again }) {
		return
	}
	tries := o.tries() // 0 if there is no outage: one may begin
	var longest time.Duration
	_ = o.protect(func() error { _, longest = policies.Bounds(o.pause, tries); return nil })
	for i := range outcomes {
		outcomes[i].away = outcomes[i].delay > longest
	}
}

// takesLong notes a probe that keeps others from being tried.
func (o *outage) takesLong() {
	o.mu.Lock()
	o.state.TakesLong()
	o.mu.Unlock()
	o.logger.Warn("worker: a handler takes long during the outage: other messages are tried beside it", o.who()...)
}

// abandon ends an outage at the end of a drain, and leaves its messages to the broker.
func (o *outage) abandon() {
	o.mu.Lock()
	over, aside := o.over, o.aside
	o.over, o.aside, o.abandoned = nil, nil, true
	o.state.Close()
	o.mu.Unlock()
	o.leaveAll(aside, untried)
	if over != nil {
		close(over)
		o.tell()
	}
}
