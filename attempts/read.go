package attempts

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/upstream"
)

// follow reads the topic.
func (l *Log) follow(life context.Context, c *link) error {
	l.mu.Lock()
	last := l.state.last
	l.mu.Unlock()
	for end := (position{}); ; {
		if l.o.ReadOnly && !l.isReady() {
			var err error
			if end, err = endAfter(life, c.reader, last, end); err != nil {
				return fmt.Errorf("asking for the last message: %w", err)
			}
			if !last.before(end) {
				l.readToEnd()
			}
		}
		msg, err := c.reader.Next(life)
		if err != nil {
			return fmt.Errorf("reading: %w", err)
		}
		last = positionOf(msg.ID())
		f, err := decode(msg.Payload())
		if err != nil { // a message of another program, or of a later version of this one
			l.o.Logger.Warn("attempts: a message of the log cannot be read and is skipped",
				"topic", c.topic, "message", msg.ID().String(), "error", err)
			continue
		}
		l.take(readAt(time.Now(), f, msg))
	}
}

// endAfter returns the position of the topic's last message, or known, an earlier result, if that is still after last.
func endAfter(ctx context.Context, r *upstream.TopicReader, last, known position) (position, error) {
	if last.before(known) {
		return known, nil
	}
	id, err := r.LastMessageID(ctx)
	if err != nil || id.EntryID() < 0 {
		return position{}, err
	}
	return positionOf(id), nil
}

// rounding, in milliseconds, is added to the time of reading. That time and the frame's are rounded down, so without it
// messages could be due up to two milliseconds early.
const rounding = 2

// readAt returns a frame as it was read at t.
func readAt(t time.Time, f frame, msg pulsar.Message) readFrame {
	r := readFrame{frame: f, at: positionOf(msg.ID()), time: msg.PublishTime().UnixMilli(),
		now: milliseconds(t) + rounding}
	if t := msg.BrokerPublishTime(); t != nil {
		r.time, r.broker = t.UnixMilli(), true
	}
	return r
}

// take applies a frame that was read. It ignores the last frame if a restarted reader gets it again: that frame does
// not show that the log works.
func (l *Log) take(r readFrame) {
	l.mu.Lock()
	if r.at == l.state.last && r.at != (position{}) {
		l.mu.Unlock()
		return
	}
	own := r.session == l.id
	if own && r.has(begins) && r.number >= l.begun {
		l.caughtUp = true
	}
	r.live = l.caughtUp
	previous := l.state.checkpoint
	l.state.apply(r)
	if r.live && previous.before(l.state.checkpoint) { // some session has tidied the log
		l.sweep(r.now)
		l.fit()
	}
	if own {
		l.own.echoed(r.number)
	}
	if r.live {
		if own {
			l.sessions.readBack(r.now)
		}
		l.sessions.hears(r.session, r.has(ends))
	}
	l.updateSize()
	caught := own && l.caughtUp
	wakes := l.tidying.reached(l.state)
	l.mu.Unlock()
	if caught {
		l.readToEnd()
	}
	if wakes {
		l.notify()
	}
}

// readToEnd notes that the log was read to its end.
func (l *Log) readToEnd() {
	l.mu.Lock()
	failed := l.failure != nil
	l.failure = nil
	if l.o.ReadOnly && !l.caughtUp { // from now on, frames are read as they are written
		l.caughtUp, l.sessions.followed = true, now()
	}
	l.mu.Unlock()
	if failed {
		l.o.Logger.Info("attempts: the log works again", "topic", l.o.Topic)
	}
	if !l.isReady() {
		close(l.ready)
	}
}

// isReady reports whether the log was read to its end; only the goroutine that reads may ask.
func (l *Log) isReady() bool {
	select {
	case <-l.ready:
		return true
	default:
		return false
	}
}
