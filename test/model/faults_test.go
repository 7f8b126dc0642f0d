package model

import (
	"context"
	"fmt"
	"time"
)

// fault causes an event of the broker, of another consumer or of the network.
func (r *modelRun) fault() {
	r.mu.Lock()
	seeking := r.seeking
	r.mu.Unlock()
	if seeking {
		return
	}
	p := r.cons.parts[r.rng.IntN(len(r.cons.parts))]
	n, out := r.rng.IntN(10), r.outage()
	detect := time.Duration(0)
	if r.cfg.Rough {
		detect = time.Duration(r.rng.Int64N(int64(1500 * time.Millisecond)))
	}
	if r.cfg.Resets && n < 4 {
		r.reset(p, out)
		return
	}
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	switch {
	case r.cfg.Others && n < 6 && p.sub.other == nil:
		p.sub.join()
	case r.cfg.Others && n < 6:
		p.sub.leave()
	case r.cfg.Breaks:
		p.lose(!r.cfg.Rough, detect, out)
	}
}

// outage draws how long the next lookup of the broker takes.
func (r *modelRun) outage() time.Duration {
	d := time.Duration(1 + r.rng.Int64N(int64(50*time.Millisecond)))
	switch r.rng.IntN(4) {
	case 0:
		d *= 100
	case 1:
		d += time.Duration(r.rng.Int64N(int64(3 * r.cfg.Pace)))
	}
	return d
}

// modelForgotten is the time after which the Consumer is sure that the broker has an acknowledgement.
const modelForgotten = 10 * time.Second

// reset makes an operator move the cursor. Messages that were settled long ago must come as new ones; those settled
// shortly before may come.
func (r *modelRun) reset(p *modelPart, out time.Duration) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	s := p.sub
	if p.state != live || s.low == 0 {
		return
	}
	pos := r.rng.IntN(s.low)
	if r.rng.IntN(2) == 0 {
		pos = max(pos, s.low-15)
	}
	r.mu.Lock()
	if r.calls > 0 {
		r.mu.Unlock()
		return
	}
	mixed := map[*modelEntry]bool{}
	for _, e := range s.entries[pos:] {
		isNew := r.isOver(e)
		for i := range e.size {
			m := r.known[keyOf(e, i)]
			switch {
			case m == nil:
			case isNew:
				r.w.note("%v must come as a new message", m)
				r.renewed++
				r.forget(m)
			case m.stand == modelSettled:
				m.either = true
			default:
				mixed[e] = e.batch
			}
		}
	}
	r.mu.Unlock()
	r.w.note("an operator resets %v to %v", s.name, s.entries[pos])
	p.lose(!r.cfg.Rough, 0, out)
	s.reset(pos)
	for e := range mixed {
		e.mixed = mixed[e]
	}
}

// isOver reports whether an entry was acknowledged long ago and no copy of it can be on its way. The caller holds both
// locks.
func (r *modelRun) isOver(e *modelEntry) bool {
	if !e.done || time.Since(e.doneAt) <= modelForgotten || e.otherDid {
		return false
	}
	sent := e.doneAt
	for i := range e.size {
		m := r.known[keyOf(e, i)]
		if m == nil || m.stand != modelSettled || m.settling > 0 || m.either || time.Since(m.settled) <= modelForgotten {
			return false
		}
		if m.copy != nil && m.copy.sent.Before(sent) {
			sent = m.copy.sent
		}
	}
	if e.asked.After(sent) {
		return false
	}
	for _, p := range r.cons.parts {
		if passed := p.sub == e.sub && len(r.cons.parts) == 1 && p.sub.top > e.pos; !passed && p.sub.disturbed.After(sent) {
			return false
		}
	}
	return true
}

// publish publishes a few messages to each topic that has fewer than most messages in unfinished entries.
func (r *modelRun) publish(most int) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	for _, p := range r.cons.parts {
		for p.sub.open() < most {
			batch := r.cfg.Batches && r.rng.IntN(2) == 0
			size := 1
			if batch {
				size = 2 + r.rng.IntN(8)
			}
			p.sub.publish(size, batch)
			if r.rng.IntN(3) == 0 {
				break
			}
		}
	}
}

// end makes the application receive and acknowledge messages until none is left.
func (r *modelRun) end() {
	r.w.note("drains")
	r.w.calm.Store(true)
	r.w.mu.Lock()
	for _, p := range r.cons.parts {
		if p.sub.other != nil {
			p.sub.leave()
		}
	}
	r.w.mu.Unlock()
	over := false
	var drain func()
	drain = func() {
		if over {
			return
		}
		wait := 100 * time.Millisecond
		held := r.all(func(m *modelExpected) bool { return m.stand == modelHeld && m.settling == 0 })
		if len(held) > 0 {
			wait = time.Millisecond
			r.call(func() { r.ack(held[0], held[0].msg, "Ack in the end") }, held[0])
		} else if r.taking() == 0 {
			wait = time.Millisecond
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			r.take(ctx, cancel, false)
		}
		r.w.after(wait, drain)
	}
	r.w.after(0, drain)
	r.comeBack(20*time.Second + 2*r.cfg.MaxDelay + 4*r.cfg.Pace + 2*r.cfg.Timeout)
	quiet := func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.calls == 0 }
	limit := 15*time.Minute + 4*r.cfg.MaxDelay + 4*r.cfg.Pace + 2*r.cfg.Timeout
	if !r.w.run(limit, func() bool { return quiet() && len(r.missing(1)) == 0 }) {
		r.w.fail("after %v of only Receive and Ack, with %d running calls, messages are missing: %v, %+v", limit,
			r.calls, r.missing(10), r.c.Stats())
		return
	}
	open := func() (open []string) {
		r.w.mu.Lock()
		defer r.w.mu.Unlock()
		for _, p := range r.cons.parts {
			for _, e := range p.sub.entries[p.sub.low:] {
				if last := p.sub.unrepeated; !e.done && (last == nil || last.pos < e.pos) {
					open = append(open, fmt.Sprintf("%v %v", e, e.acked))
				}
			}
		}
		return open
	}
	// the Consumer does not repeat a cumulative acknowledgement that a lost connection swallowed
	isWindow := r.cfg.Cumulative && !r.cfg.Response && r.cfg.Breaks
	// upstream does not repeat a cumulative acknowledgement that the broker refused in the middle of a batch: see
	// mayBeUnsent
	isUnsent := r.cfg.Cumulative && r.cfg.AckErrors && r.cfg.Batches && !r.cfg.IndexAcks
	if !r.w.run(5*time.Minute, func() bool { return len(open()) == 0 }) && !isWindow && !isUnsent {
		r.w.fail("all is settled, but not acknowledged at the broker: %v", open())
		return
	}
	// In this time the Consumer stops requesting messages that another consumer got.
	r.w.run(30*time.Minute, func() bool { return false })
	r.w.run(time.Hour, func() bool { return r.c.Stats().Waiting == 0 })
	over = true
	gone := 0
	if r.cfg.Others || isWindow { // after a loss, the Consumer goes on requesting messages of a topic that sends none
		gone = r.c.Stats().Ready
	}
	if s := r.c.Stats(); s.Waiting != gone || s.BufferedBytes != 0 {
		r.w.fail("all is settled, but Stats are %+v", s)
	}
	if calls := int(r.backOffCalls.Load()); r.cfg.OwnBackOff && calls != int(r.cons.reconnects.Load()) {
		r.w.fail("BackOffPolicyFunc was called %d times, want %d", calls, r.cons.reconnects.Load())
	}
}

// close closes the Consumer. Close must return in any state.
func (r *modelRun) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	closed := make(chan struct{})
	go func() {
		defer r.w.nudge()
		defer close(closed)
		r.c.Close()
	}()
	over := func() bool {
		select {
		case <-closed:
		default:
			return false
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.calls == 0 && r.takes == 0
	}
	failed := r.w.failed()
	patience := time.Minute
	if r.cfg.Chan { // Close does not close the channel: receivers wait until their contexts are done
		patience += 2 * r.cfg.Pace
	}
	if !r.w.runOn(patience, over) && !failed {
		r.w.fail("%v after Close, %d calls and %d receivers are still running", patience, r.calls, r.takes)
	}
}
