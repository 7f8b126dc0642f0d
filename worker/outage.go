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

	mu       sync.Mutex    // guards what follows
	failures outages.Row   // before the outage
	over     chan struct{} // closed when the outage is over; nil while there is none
	began    time.Time
	tries    uint32
	tried    map[name]int  // how often each message that failed did so as a probe
	aside    []task        // messages that are set aside: not tried at present
	asked    time.Duration // by the RetryAfter of the last try
	pausing  time.Duration // until the next try; 0 while none is waited for
	paused   time.Duration // before this try

	abandoned bool   // since Run ended
	notice    notice // that there is one
}

func newOutage(r *run) *outage {
	return &outage{run: r, probing: make(chan struct{}, 1), tried: map[name]int{},
		failures: outages.NewRow(r.window, r.ratio)}
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
	pause := o.nextPause()
	o.setPausing(pause)
	defer o.setPausing(0)
	o.giveBackAtRest()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-over:
	case <-o.taking.Done():
	}
	_, err := o.valve.waitAnd(o.taking, o.giveBackAtRest)
	return err
}

// nextPause is how long to wait before the next try.
func (o *outage) nextPause() (pause time.Duration) {
	o.mu.Lock()
	tries, asked := o.tries, o.asked
	o.mu.Unlock()
	if err := o.protect(func() error { pause = o.pause.Next(tries); return nil }); err != nil {
		pause = time.Minute
	}
	return max(pause, asked)
}

func (o *outage) setPausing(pause time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pausing = pause; pause > 0 {
		o.paused = pause
	}
}

// report notes how the handler did. It reports whether what failed is to be tried again
// without being nacked: there is an outage, and it is no probe that failed too often.
func (o *outage) report(probe bool, tasks []task, outcomes []outcome) (keep bool) {
	o.mu.Lock()
	before, keep := o.over, true
	for i, out := range outcomes {
		switch failed := out.retries(); {
		case probe && (out.verb == dead || out.verb == snooze) && o.over != nil: // it tells nothing, and others come first
			o.tried[nameOf(tasks[i].msg)]++
		case out.verb == dead, out.verb == snooze, out.verb == held, o.abandoned:
		case o.over == nil:
			if failed && (tasks[i].kept || tasks[i].counted().RedeliveryCount() > 0) {
				break // it says more about the message than about what handlers need
			}
			if o.failures.Note(failed) {
				o.begin(out)
				o.tried[nameOf(tasks[i].msg)] = 0 // it failed before
			}
		case !failed:
			o.end()
		case probe:
			keep = o.failedAgain(nameOf(tasks[i].msg), out)
		default: // it was called before the outage began
			of := nameOf(tasks[i].msg)
			o.tried[of] = max(0, o.tried[of]) // it failed before
		}
	}
	after, began, tries := o.over, o.began, o.tries
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
	return keep && after != nil
}

// tell tells whether there is an outage, if that changed.
func (o *outage) tell() {
	o.notice.tell(&o.mu, func() bool { return o.over != nil }, func(begins bool) func() {
		after, tries, abandoned := time.Since(o.began), o.tries, o.abandoned
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
	o.mu.Lock()
	tries := o.tries
	if o.over == nil { // one may begin
		tries = 0
	}
	o.mu.Unlock()
	var longest time.Duration
	_ = o.protect(func() error { _, longest = policies.Bounds(o.pause, tries); return nil })
	for i := range outcomes {
		outcomes[i].away = outcomes[i].delay > longest
	}
}

// begin begins an outage. The caller holds mu.
func (o *outage) begin(last outcome) {
	o.over, o.began, o.tries = make(chan struct{}), time.Now(), 0
	o.ask(last)
	clear(o.tried)
}

// failedAgain counts a failed probe, and reports whether its message stays here, uncounted. The caller holds mu.
func (o *outage) failedAgain(of name, out outcome) (keep bool) {
	o.tries++
	o.ask(out)
	o.tried[of]++
	return o.tried[of] <= outages.FreeProbes
}

// ask makes the next pause as long as the delay of a message that stays here. The caller holds mu.
func (o *outage) ask(out outcome) {
	if o.asked = out.delay; out.away {
		o.asked = 0
	}
}

// takesLong notes a probe that keeps others from being tried.
func (o *outage) takesLong() {
	o.mu.Lock()
	o.tries++
	o.mu.Unlock()
	o.logger.Warn("worker: a handler takes long during the outage: other messages are tried beside it", o.who()...)
}

// end ends an outage. The caller holds mu.
func (o *outage) end() {
	close(o.over)
	o.over = nil
}

// abandon ends an outage at the end of a drain, and leaves its messages to the broker.
func (o *outage) abandon() {
	o.mu.Lock()
	over, aside := o.over, o.aside
	o.over, o.aside, o.abandoned = nil, nil, true
	o.mu.Unlock()
	o.leaveAll(aside, untried)
	if over != nil {
		close(over)
		o.tell()
	}
}
