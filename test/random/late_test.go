package random

import (
	"context"
	"time"
)

// lateness is for how long nothing may come to applications that wait although a message is due.
const lateness = 15 * time.Second

// isOverdue reports whether a message should have come to those who waited. The caller holds mu.
func (r *randomRun) isOverdue(f *fate) bool {
	return !f.due.IsZero() && r.quietSince(f.due) > lateness && (r.away == "" || f.partition != r.away)
}

// waitsFor asserts that what is due comes at all, while others are on their way too.
func (r *randomRun) waitsFor(ctx context.Context) {
	for told := false; ctx.Err() == nil && !told; time.Sleep(100 * time.Millisecond) {
		r.mu.Lock()
		for n, f := range r.fates {
			if f.isOver() || !r.isOverdue(f) {
				continue
			}
			told = true
			r.wrongLocked("message %d does not come: %v", n, f)
		}
		r.mu.Unlock()
	}
}
