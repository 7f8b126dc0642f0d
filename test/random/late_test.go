package random

import (
	"context"
	"time"
)

// lateness is how late a message may come while applications receive.
const lateness = 15 * time.Second

// isOverdue reports whether a message should have come to an application. The caller holds mu.
func (r *randomRun) isOverdue(f *fate) bool {
	return !f.due.IsZero() && r.quietSince(f.due) > lateness && (r.away == "" || f.partition != r.away)
}

// watchDue checks, until ctx is done, that due messages come.
func (r *randomRun) watchDue(ctx context.Context) {
	for reported := false; ctx.Err() == nil && !reported; time.Sleep(100 * time.Millisecond) {
		r.mu.Lock()
		for n, f := range r.fates {
			if f.isOver() || !r.isOverdue(f) {
				continue
			}
			reported = true
			r.faultLocked("message %d does not come: %v", n, f)
		}
		r.mu.Unlock()
	}
}
