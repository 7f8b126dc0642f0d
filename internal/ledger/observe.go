package ledger

import "time"

// Cause says why a message is handed out again.
type Cause uint8

const (
	NoCause Cause = iota // the Ledger knows none
	Nacked
	TimedOut
)

// timing has the times of a message, where somebody observes. Moments count from the Ledger's start.
type timing struct {
	had     time.Duration // since when the application has it; while it waits, for how long it had it
	due     time.Duration // when it comes back, if it is not settled
	timeout time.Duration // its ack timeout
	waits   time.Duration // since when it waits
	known   bool          // had is
	waiting bool
	cause   Cause
}

// timing returns the times of a message, or nil if nobody observes. It is valid until the next call.
func (t *table) timing(ref Ref, e *entry) *timing {
	times, i := &t.times, int(ref.slot())
	switch {
	case !t.o.Observed:
		return nil
	case e.isBatch():
		times, i = &e.batch.times, int(ref.index())
	}
	if i >= len(*times) {
		*times = append(*times, make([]timing, i+1-len(*times))...)
	}
	return &(*times)[i]
}

// Now is the present moment.
func (l *Ledger) Now() time.Duration { return time.Since(l.at.start) }

// Taken tells an observed Ledger that the application has a message again, and returns when and why it was to come; due is zero if
// nothing was waited for.
func (l *Ledger) Taken(d Delivery) (due time.Time, cause Cause) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, r := l.table.at(d.Ref)
	if !l.isCurrent(r, d) {
		return due, NoCause
	}
	x := l.table.timing(d.Ref, e)
	*x = timing{due: x.due, cause: x.cause}
	l.handed(x)
	if x.cause != NoCause {
		due = l.at.start.Add(x.due)
	}
	return due, x.cause
}

// handed notes that the application has a message.
func (l *Ledger) handed(x *timing) {
	if l.o.Timed {
		x.had, x.known = l.Now(), true
	}
}

// waitsFor notes that a message is to come again. The caller holds mu.
func (l *Ledger) waitsFor(ref Ref, e *entry, delay time.Duration, cause Cause) {
	x := l.table.timing(ref, e)
	if x == nil {
		return
	}
	now := l.Now()
	if cause != TimedOut { // else it is due since its ack timeout ended
		x.due = now + min(delay, maxWait)
	}
	if x.known && !x.waiting {
		x.had = now - x.had
	}
	x.waits, x.waiting, x.cause = now, true, cause
}

// maxWait is added to moments without overflow.
const maxWait = 100 * 365 * 24 * time.Hour

// timesOut notes when a message's ack timeout is over; a timeout of 0 is as long as before. The caller holds mu.
func (l *Ledger) timesOut(ref Ref, e *entry, timeout time.Duration) {
	x := l.table.timing(ref, e)
	if x == nil {
		return
	}
	if timeout > 0 {
		x.timeout = min(timeout, maxWait)
	}
	x.due = l.Now() + x.timeout
}

// NotHad says that it is unknown since when the application has a message.
const NotHad time.Duration = -1

// oldest returns for how long the message has waited that waits longest. The caller holds mu.
func (l *Ledger) oldest() (longest time.Duration) {
	t := &l.table
	if !l.o.Observed {
		return 0
	}
	if t.states[waiting]+t.states[due]+t.states[ready] == 0 {
		if t.states[inFlight] == 0 {
			t.times = nil // so that it is no larger than need be for ever
		}
		return 0
	}
	now := l.Now()
	for slot, e := range t.all() {
		for i := range e.size() {
			if x := t.timing(refOf(slot, i), e); x.waiting {
				longest = max(longest, now-x.waits)
			}
		}
	}
	return longest
}
