package attempts

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"
)

const (
	maxChanges = 1000                 // changes in a frame
	interval   = 5 * time.Millisecond // between frames
)

// write writes changes, and the state of the session, until the Log is closed.
func (l *Log) write(life context.Context, c *link) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		closing := false
		select {
		case <-l.closing:
			closing = true
		default:
		}
		f, places, wait := l.next(closing)
		if f != nil {
			if err := l.send(life, c, f, places); err != nil {
				return err
			}
			if f.has(ends) {
				return c.answered(life)
			}
			wait = interval
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-l.wake:
			if f != nil { // changes come in quick succession: collect some for the next frame
				sleep(life, interval)
			}
		case <-l.closing:
		case <-life.Done():
			return life.Err()
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// next returns the next frame to send and the places of its changes. A nil frame means that none is due before wait is
// over, unless something changes.
func (l *Log) next(closing bool) (f *frame, places []place, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := now()
	f = &frame{session: l.id, number: l.number + 1, checkpoint: l.state.checkpoint}
	if l.tidying.snapshot(l.state, f, at, l.o.Retention) {
		l.number = f.number
		return f, nil, 0
	}
	if l.sessions.lease > 0 {
		l.findLost(at)
		n := time.Duration(len(l.sessions.live))
		l.sessions.lease = max(minLease, n*leaseOfEach).Milliseconds()
	}
	renews := l.sessions.addState(f, l.o.Name)
	if f.has(begins) {
		l.begun = f.number
	}
	if l.own.resets {
		f.flags |= resets
		l.own.resets, l.own.resetIn = false, f.number
	}
	places, more := l.own.gather(f.number, at, maxChanges, closing)
	for _, p := range places {
		x := l.own.byPlace[p]
		if x.removed && x.from > 0 && l.state.records[p].count > x.count {
			// another session failed on the message since it was settled here: the acknowledgement was lost
			x.notifyWritten()
			delete(l.own.byPlace, p)
			continue
		}
		c := change{Key: l.state.key(p), removed: x.removed, session: l.id}
		if !x.removed {
			if x.forgets {
				f.changes = append(f.changes, change{Key: c.Key, removed: true, session: l.id})
			}
			c.count, c.crashes, c.begun, c.cause = x.count, x.crashes, x.begun, x.cause
			if x.due > 0 {
				c.delay = x.due - at
			}
		}
		f.changes = append(f.changes, c)
	}
	tidies, tidyAt := l.tidying.begins(l.state, at, len(l.state.sessions))
	if tidies {
		l.tidying.number = f.number
	}
	if closing && len(l.own.unsent) == 0 {
		f.flags |= ends
	}
	if len(places) > 0 || f.flags&^leases != 0 || renews <= at && renews > 0 || tidies {
		l.number = f.number
		return f, places, 0
	}
	return nil, nil, until(at, more, renews, tidyAt)
}

// until returns the time from now until the first of some moments, at most an hour. Moments that are 0 do not count.
func until(now int64, moments ...int64) time.Duration {
	wait := time.Hour
	for _, m := range moments {
		if m > 0 {
			wait = min(wait, time.Duration(max(0, m-now))*time.Millisecond)
		}
	}
	return wait
}

// maxUnderway is how many frames may wait for the broker's answer.
const maxUnderway = 16

// send sends a frame.
func (l *Log) send(life context.Context, c *link, f *frame, places []place) error {
	select {
	case c.underway <- struct{}{}:
	case <-life.Done():
		l.notSent(f)
		return life.Err()
	}
	l.mu.Lock()
	l.sessions.stateSent(f)
	l.mu.Unlock()
	began := time.Now()
	publishing.SendAsync(life, c.producer, &pulsar.ProducerMessage{Payload: f.encode()},
		func(id pulsar.MessageID, err error) {
			defer func() { <-c.underway }()
			if err != nil {
				l.notSent(f)
				c.end(fmt.Errorf("writing: %w", err))
				return
			}
			l.sent(c, f, places, id)
			if took := time.Since(began); took > slow { // Failed may block, and this goroutine reads the connection
				c.tasks.Go(func() { l.reportSlow(took) })
			}
		})
	return nil
}

// notSent notes that a frame could not be written. The next link sends its changes again, and all others that were not
// read back.
func (l *Log) notSent(f *frame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.own.resets = l.own.resets || f.has(resets)
}

// sent notes that a frame is written.
func (l *Log) sent(c *link, f *frame, places []place, id pulsar.MessageID) {
	l.mu.Lock()
	for _, p := range places {
		if x := l.own.byPlace[p]; x != nil && x.number == f.number {
			x.notifyWritten()
		}
	}
	l.mu.Unlock()
	l.tidied(c, f, id)
}

// answered waits until all frames that were sent have an answer.
func (c *link) answered(life context.Context) error {
	for range maxUnderway {
		select {
		case c.underway <- struct{}{}:
		case <-life.Done():
			return life.Err()
		}
	}
	return nil
}

// slow is how long writing a frame may take before reportSlow is called.
const slow = 2 * time.Second

// reportSlow logs and reports that the log lags, at most once a minute.
func (l *Log) reportSlow(took time.Duration) {
	l.mu.Lock()
	report := now()-l.reportedSlow > time.Minute.Milliseconds()
	if report {
		l.reportedSlow = now()
	}
	l.mu.Unlock()
	if !report {
		return
	}
	l.o.Logger.Warn("attempts: writing the log is slow; other consumers learn of this consumer's failures late",
		"topic", l.o.Topic, "took", took)
	if l.o.Failed != nil {
		l.o.Failed(fmt.Errorf("attempts: writing to %s took %v", l.o.Topic, took))
	}
}
