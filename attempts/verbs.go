package attempts

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"
)

// Failed records that a message was delivered count times, failed, and waits for delay. Without a delay, the message is
// due in all sessions once they have the record. The cause is cut to 120 bytes; "" means none.
func (l *Log) Failed(k Key, count uint32, delay time.Duration, cause string) {
	cause = strings.ToValidUTF8(cause[:min(len(cause), maxCause)], "")
	due := now()
	if delay > 0 {
		due += min(delay, maxDelay).Milliseconds() + 2 // due and the delay are rounded down
	}
	l.change(k, false, func(r *record) bool {
		*r = record{due: due, count: max(count, r.count), crashes: l.crashes(*r), cause: cause}
		return true
	})
}

const (
	maxCause = 120
	maxDelay = 100 * 365 * 24 * time.Hour // can be added to a time without an overflow
)

// Begun records that a message is in a handler of this session.
func (l *Log) Begun(k Key) { l.begin(k, false) }

// Begin does what Begun does, but returns only when the record is written.
func (l *Log) Begin(ctx context.Context, k Key) error {
	if l.o.ReadOnly {
		return ErrReadOnly
	}
	began := time.Now()
	err := l.awaitWritten(ctx, l.begin(k, true))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sessions.spend(carefulWait*time.Since(began), now(), carefulMost)
	return err
}

func (l *Log) begin(k Key, waits bool) (done <-chan struct{}) {
	return l.change(k, waits, func(r *record) bool {
		r.crashes = l.crashes(*r)
		r.begun = l.id
		return true
	})
}

// Ended records that a message has left its handler without being settled. It does nothing unless this session has
// recorded that the message is in a handler.
func (l *Log) Ended(k Key) { l.leaves(k, false) }

// End does what Ended does, but returns only when the record is written.
func (l *Log) End(ctx context.Context, k Key) error {
	if done := l.leaves(k, true); done != nil {
		return l.awaitWritten(ctx, done)
	}
	return nil
}

// leaves does what Ended does. It returns nil if there is nothing to record.
func (l *Log) leaves(k Key, waits bool) (done <-chan struct{}) {
	return l.change(k, waits, func(r *record) (changed bool) {
		changed = r.begun == l.id
		r.begun = 0
		return changed
	})
}

// Settled records that a message is settled, which removes it from the log. The Log writes the removal after three
// seconds, when the acknowledgement has surely reached the broker: until then the message may be delivered again. If
// another session fails on the message by then, the acknowledgement was lost, and the record stays.
func (l *Log) Settled(k Key) {
	if l.known.Load() == 0 || l.o.ReadOnly {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r, ok := l.find(k); ok {
		p := l.state.placeOf(k)
		if _, written := l.state.records[p]; !written && l.own.drop(p) {
			l.updateSize()
			return
		}
		l.own.remove(p, r, now()+settleDelay.Milliseconds())
		l.updateSize()
		if len(l.own.later) == 1 {
			l.notify()
		}
	}
}

// settleDelay is the time after which an acknowledgement has surely reached the broker.
const settleDelay = 3 * time.Second

// Forget removes a message from the log, and returns when the removal is written.
func (l *Log) Forget(ctx context.Context, k Key) error {
	if err := l.refuses(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	c := l.own.remove(l.state.placeOf(k), record{}, 0)
	l.updateSize()
	done := c.wait()
	l.mu.Unlock()
	l.notify()
	return l.awaitWritten(ctx, done)
}

// Flush returns when all earlier records are written and this Log has read them back: other consumers then know them,
// or soon will. It does not wait for removals by Settled, which are written later.
func (l *Log) Flush(ctx context.Context) error {
	before := now()
	return l.await(ctx, func() bool { return !l.own.unread(before) })
}

// ForgetAll removes all messages from the log, and returns when the removal is written and this Log has read it back.
// Consumers keep their own counts.
func (l *Log) ForgetAll(ctx context.Context) error {
	if err := l.refuses(ctx); err != nil {
		return err
	}
	l.Reset()
	return l.await(ctx, func() bool { return !l.own.resets && l.own.resetIn == 0 })
}

// refuses returns an error that says why nothing can be written, or nil.
func (l *Log) refuses(ctx context.Context) error {
	switch {
	case l.o.ReadOnly:
		return ErrReadOnly
	case l.life.Err() != nil:
		return ErrClosed
	case ctx.Err() != nil:
		return l.notWritten(ctx)
	}
	return nil
}

// await waits until met returns true. It holds mu while it calls met.
func (l *Log) await(ctx context.Context, met func() bool) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		l.mu.Lock()
		done := met()
		l.mu.Unlock()
		switch {
		case done:
			return nil
		case l.o.ReadOnly:
			return ErrReadOnly
		}
		select {
		case <-tick.C:
		case <-l.life.Done():
			return ErrClosed
		case <-ctx.Done():
			return l.notWritten(ctx)
		}
	}
}

// Reset forgets all messages, as after a seek.
func (l *Log) Reset() {
	if l.o.ReadOnly {
		return
	}
	l.mu.Lock()
	l.own.reset()
	clear(l.state.records)
	l.updateSize()
	l.mu.Unlock()
	l.notify()
}

// change changes the record of a message, unless how returns false. If waits is set and the record has changed, done is
// closed when the change is written; otherwise done is nil.
func (l *Log) change(k Key, waits bool, how func(*record) bool) (done <-chan struct{}) {
	if l.o.ReadOnly {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r, _ := l.find(k)
	if !how(&r) {
		return nil
	}
	r.session, r.written = l.id, now()
	c := l.own.put(l.state.placeOf(k), r)
	if waits {
		done = c.wait()
	}
	l.updateSize()
	l.notify()
	return done
}

// awaitWritten waits until a change is written.
func (l *Log) awaitWritten(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-l.life.Done():
		return ErrClosed
	case <-ctx.Done():
		return l.notWritten(ctx)
	}
}

// notWritten returns an error that says why a change was not written in time.
func (l *Log) notWritten(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Errorf("attempts: writing to %s: %w", l.o.Topic, cmp.Or(l.failure, ctx.Err()))
}
