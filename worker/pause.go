package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// pauser keeps slots from taking messages: from Pause until Resume, and for a while after a handler returned PauseFor.
// For the pauses of an outage, see outage.go.
type pauser struct {
	flow atomic.Pointer[context.Context] // the context with which slots take messages; nil in a pause, and at first

	mu       sync.Mutex         // held to change flow, and guards the fields below
	stop     context.CancelFunc // ends flow
	resumed  chan struct{}      // closed when the pause is over; nil while there is none
	asked    bool               // paused by Pause
	until    time.Time          // the end of the pause by PauseFor; zero if there is none
	timer    *time.Timer        // ends that pause; nil before the first one
	over     bool               // the drain is over, and there are no more pauses
	byPause  change             // reports changes of asked
	byHandle change             // reports when until is set and when it is over
}

// wait waits while there is a pause. It returns a context for taking messages, which ends when a pause begins or ctx is
// done. Before each wait it calls meanwhile, and after the wait the function that meanwhile returned.
func (p *pauser) wait(ctx context.Context, meanwhile func() (ends func())) (context.Context, error) {
	for {
		if flow := p.flow.Load(); flow != nil {
			return *flow, ctx.Err()
		}
		resumed := p.begin(ctx)
		if resumed == nil {
			continue
		}
		ends := meanwhile()
		select {
		case <-resumed:
		case <-ctx.Done():
		}
		ends()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// begin makes a flow. In a pause it makes none, and returns a channel that is closed when the pause is over.
func (p *pauser) begin(ctx context.Context) (resumed chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.resumed == nil && p.flow.Load() == nil {
		flow, stop := context.WithCancel(ctx)
		p.flow.Store(&flow)
		p.stop = stop
	}
	return p.resumed
}

// set calls change, which changes asked, until or over. Then set begins or ends a pause as these fields say.
func (p *pauser) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	switch paused := p.asked || !p.until.IsZero(); {
	case paused && p.resumed == nil:
		p.resumed = make(chan struct{})
		p.endFlow()
	case !paused && p.resumed != nil:
		close(p.resumed)
		p.resumed = nil
	}
}

// setAsked begins or ends a pause by Pause.
func (p *pauser) setAsked(asked bool) {
	p.set(func() { p.asked = asked && !p.over })
}

// pauseFor pauses for d, and calls over after d. If an earlier PauseFor lasts longer, pauseFor does nothing. It reports
// whether it began a pause, rather than extended one.
func (p *pauser) pauseFor(d time.Duration, over func()) (begins bool) {
	until := time.Now().Add(d)
	p.set(func() {
		if p.over || !until.After(p.until) {
			return
		}
		p.stopTimer()
		begins, p.until = p.until.IsZero(), until
		p.timer = time.AfterFunc(d, func() {
			p.set(func() {
				if p.until.Equal(until) { // otherwise a later PauseFor has extended the pause
					p.until = time.Time{}
				}
			})
			over()
		})
	})
	return begins
}

// end ends all pauses for good.
func (p *pauser) end() {
	p.set(func() {
		p.over, p.asked, p.until = true, false, time.Time{}
		p.stopTimer() // it would keep the Worker in memory
	})
}

// stopTimer stops timer. The caller holds mu.
func (p *pauser) stopTimer() {
	if p.timer != nil {
		p.timer.Stop()
	}
}

// interrupt makes the slots that take messages decide again what to take.
func (p *pauser) interrupt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endFlow()
}

// endFlow ends the flow under way. The caller holds mu.
func (p *pauser) endFlow() {
	if p.flow.Swap(nil) != nil {
		p.stop()
	}
}

func (p *pauser) isPaused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.resumed != nil
}

// isAsked reports whether there is a pause by Pause.
func (p *pauser) isAsked() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// change reports a condition when it begins and when it ends. Slow listeners may miss intermediate changes but always
// see the latest one.
type change struct {
	reported  bool // the condition as it was last reported
	reporting bool // a goroutine is calling a report
}

// report reports the condition if holds returns something else than was last reported. It locks mu, calls holds and
// describe, unlocks mu, and then calls the function that describe returned.
func (c *change) report(mu *sync.Mutex, holds func() bool, describe func(holds bool) (report func())) {
	mu.Lock()
	defer mu.Unlock()
	for c.reported != holds() && !c.reporting {
		c.reported, c.reporting = !c.reported, true
		report := describe(c.reported)
		mu.Unlock()
		report()
		mu.Lock()
		c.reporting = false
	}
}

// notifyAsked reports a change: Pause was called, or its pause is over.
func (w *Worker) notifyAsked() {
	p := &w.pauser
	p.byPause.report(&p.mu, func() bool { return p.asked }, func(paused bool) func() {
		over := p.over
		return func() {
			switch {
			case paused:
				w.logger.Info("worker: paused", w.who()...)
			case !over: // otherwise Run is returning
				w.logger.Info("worker: resumed", w.who()...)
			}
			w.notifyPaused(paused, PauseAsked)
		}
	})
}

// notifyPausedFor reports a change: handlers have paused the Worker, or that pause is over.
func (w *Worker) notifyPausedFor() {
	p := &w.pauser
	p.byHandle.report(&p.mu, func() bool { return !p.until.IsZero() }, func(paused bool) func() {
		return func() { w.notifyPaused(paused, PauseHandler) }
	})
}

// pauseFor begins the pauses that handlers asked for. In a drain there are none.
func (r *run) pauseFor(outcomes []outcome) {
	for _, o := range outcomes {
		if o.pause == nil || o.pause.snooze.delay == 0 || r.taking.Err() != nil {
			continue
		}
		d := o.pause.snooze.delay
		if r.pauser.pauseFor(d, r.notifyPausedFor) && r.repeats.first("pause", nil) {
			_, attr := r.describe(o.pause.err)
			r.logger.Warn("worker: a handler asked for a pause: no messages are taken for a while",
				append(r.who(), "for", d, attr)...)
		}
		r.notifyPausedFor()
	}
}
