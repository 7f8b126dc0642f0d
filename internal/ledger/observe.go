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
	waiting bool
	cause   Cause
}

// Now is the present moment.
func (l *Ledger) Now() time.Duration { return time.Since(l.start) }

// Taken tells an observed Ledger that the application has a message, and returns when and why it was to come again; due is
// zero if nothing was waited for.
func (l *Ledger) Taken(d Delivery) (due time.Time, cause Cause) {
	now := l.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, r := l.table.at(d.Ref); !l.isCurrent(r, d) {
		return due, NoCause
	}
	was := l.table.times[d.Ref]
	l.table.times[d.Ref] = timing{had: now, due: was.due, cause: was.cause}
	if was.cause != NoCause {
		due = l.start.Add(was.due)
	}
	return due, was.cause
}

// waitsFor notes that a message is to come again. The caller holds mu.
func (l *Ledger) waitsFor(ref Ref, delay time.Duration, cause Cause) {
	if l.table.times == nil {
		return
	}
	now := l.Now()
	x, taken := l.table.times[ref]
	if cause != TimedOut { // else it is due since its ack timeout ended
		x.due = now + min(delay, maxWait)
	}
	if taken && !x.waiting {
		x.had = now - x.had
	}
	x.waits, x.waiting, x.cause = now, true, cause
	l.table.times[ref] = x
}

// maxWait is added to moments without overflow.
const maxWait = 100 * 365 * 24 * time.Hour

// timesOut notes when a message's ack timeout is over; a timeout of 0 is as long as before. The caller holds mu.
func (l *Ledger) timesOut(ref Ref, timeout time.Duration) {
	if l.table.times == nil {
		return
	}
	x := l.table.times[ref]
	if timeout > 0 {
		x.timeout = min(timeout, maxWait)
	}
	x.due = l.Now() + x.timeout
	l.table.times[ref] = x
}

// since returns since when the application has a message, which may not have it any more. The caller holds mu.
func (l *Ledger) since(ref Ref) time.Duration {
	x, ok := l.table.times[ref]
	switch {
	case !ok:
		return NotHad
	case x.waiting:
		return l.Now() - x.had
	}
	return x.had
}

// attempts returns how often the application had a message.
func attempts(r *record) uint32 {
	if r.flags.has(postponed) {
		return r.count
	}
	return r.count + min(1, ^r.count)
}

// NotHad says that it is unknown since when the application has a message.
const NotHad time.Duration = -1

// timedOut notes that the ack timeout of a message is over, for report. The caller holds mu.
func (l *Ledger) timedOut(ref Ref, e *entry, r *record) {
	if l.o.Calls.TimedOut == nil {
		return
	}
	l.reports = append(l.reports, Settling{Ref: ref, Consumer: e.stream().consumer, Topic: e.stream().topic,
		ID: l.table.newest(ref, r), Attempts: attempts(r), Since: l.since(ref)})
	l.waitsFor(ref, 0, TimedOut)
}

// report tells of the timeouts that were noted. The caller does not hold mu.
func (l *Ledger) report() {
	if l.o.Calls.TimedOut == nil {
		return
	}
	l.mu.Lock()
	reports := l.reports
	l.reports = nil
	l.mu.Unlock()
	for _, s := range reports {
		l.o.Calls.TimedOut(s)
	}
}

// oldest returns for how long the message has waited that waits longest. The caller holds mu.
func (l *Ledger) oldest() (longest time.Duration) {
	now := l.Now()
	for _, x := range l.table.times {
		if x.waiting {
			longest = max(longest, now-x.waits)
		}
	}
	return longest
}
