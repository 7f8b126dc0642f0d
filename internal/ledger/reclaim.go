package ledger

import (
	"math"
	"time"
)

// Reclaim reports whether the application has a message that is this consumer's. If that is in doubt it is to be asked again: had is true
// meanwhile, and false if the message is another consumer's, was settled, or is waited for here; then it comes again with at least count.
func (l *Ledger) Reclaim(n Name, count uint32) (ours, had bool) {
	l.mu.Lock()
	var a ask
	ref, e, r := l.find(n)
	if had = r != nil && isWith(r, n); had {
		if ours = !r.flags.has(doubtful) || r.flags.has(busy); !ours {
			a = l.reclaim(ref, e, r, count)
			_, r = l.table.at(ref)
			had = r != nil && isWith(r, n)
		}
	}
	l.unlockAndNotify(a)
	return ours, had
}

// reclaim finds out whether a message that the application has is still this consumer's: if it is, the broker sends it again, of itself
// if the connection was its topic's, else asked for it. What does not come is forgotten: if it is this consumer's after all, the broker
// sends it, and what came after it too. The caller holds mu.
func (l *Ledger) reclaim(ref Ref, e *entry, r *record, count uint32) ask {
	s := e.stream()
	asked := l.table.asked[ref.slot()].at
	resending := l.isResending(s)
	unread := resending || !asked.IsZero() && time.Since(asked) > unreadTime
	switch {
	case s.inactive:
		l.disown(ref, e, r)
	case !s.run.own && unread && time.Since(s.run.heard) > unreadTime, // nobody takes what comes
		s.run.own && (s.lost || s.awaitsFirst() || resending) && time.Since(s.run.lostAt) > lostTime && time.Since(s.run.heard) > lostTime:
		r.count, r.flags = max(r.count, count), r.flags|uncounted
		l.expect(ref, e, r, check)
	case !s.run.own && !l.nacks.Tracks(uint64(ref)):
		return l.ask(ref, e, r)
	case !s.run.own, s.lost, resending: // to be known soon
	default:
		l.disown(ref, e, r)
	}
	return ask{}
}

// unreadTime is after how long it is not waited for an answer any more that nobody takes: the application may have no room for more before
// it is rid of what it has.
const unreadTime = 15 * time.Second

// disown forgets a message that is another consumer's, or was settled there. The caller holds mu.
func (l *Ledger) disown(ref Ref, e *entry, r *record) {
	if e.isBatch() {
		e.batch.base = math.MaxUint32 // others had it meanwhile, so the broker's count is the only one
	}
	l.untrack(ref, r)
	l.table.forget(ref, e, r)
}
