package deadletter

import "context"

// undoContext returns a context for undoing steps, even after ctx is done.
func undoContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), lockPatience)
}

// isWithoutEffect reports whether this call has published no letter, and has not continued a run.
func (r *replay) isWithoutEffect() bool { return r.sent == 0 && !r.report.Resumed }

// undo ends a replay that has published no letter, so that the next replay can begin. It ends the run only if this call
// began it, and removes the subscription only if this call created it. It does so before it removes the journal, which
// is the lock: after that, another call may use the subscription.
func (r *replay) undo(ctx context.Context, failed bool) error {
	if failed {
		limited, cancel := undoContext(ctx)
		defer cancel()
		ctx = limited
	}
	if r.begun != nil && r.j.run != nil && !r.j.isPending() {
		if err := r.j.append(ctx, record{Over: r.begun.ID}); err != nil {
			return err
		}
	}
	r.j.pending = record{}
	if r.j.creates {
		if err := r.t.unsubscribe(ctx); err != nil {
			return err
		}
	}
	return r.j.tidy(ctx)
}
