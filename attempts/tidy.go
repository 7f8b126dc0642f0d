package attempts

import (
	"math/rand/v2"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// tidying keeps the log short. A session writes a mark. When it has read the mark back, it copies all records and
// sessions that it knows, as if they were written at the mark. Then frames name the mark as the checkpoint after which
// sessions begin to read, and the log's own subscription moves there, so that the broker deletes everything before the
// mark. Several sessions may tidy at the same time: each of their marks is a valid checkpoint.
type tidying struct {
	at     int64    // when to begin; 0 if that is not chosen yet
	number uint64   // of the frame that is the mark, until that is written; 0 for none
	mark   position // position of the mark once it is written
	todo   []place  // records that are yet to be copied
	copied bool     // todo was made
	forced bool     // tidying is due even if the log is short: the topic may be new, without the earlier frames
	since  position // the checkpoint when tidying was forced
}

const (
	// A session begins to tidy when the log has tidyRatio changes for each record and session that would be copied, and
	// at least tidyMin changes.
	tidyRatio = 9
	tidyMin   = 1000
)

// begins reports whether a mark is due now. If not, at is when to ask again; 0 means after the next write.
func (t *tidying) begins(s *state, now int64, sessions int) (due bool, at int64) {
	if t.number > 0 || t.mark != (position{}) {
		return false, 0
	}
	if t.forced && t.since.before(s.checkpoint) { // another session has tidied
		t.forced, t.at = false, 0
	}
	if !t.forced && s.since < max(tidyMin, tidyRatio*(len(s.records)+len(s.sessions))) {
		t.at = 0
		return false, 0
	}
	if t.at == 0 { // at random, so that not all sessions begin at the same time
		t.at = now + rand.Int64N(1000+20*int64(sessions)) + 1
	}
	return t.at <= now, t.at
}

// reached reports whether the mark was read back, so that it is time to copy.
func (t *tidying) reached(s *state) bool {
	return t.mark != (position{}) && !s.last.before(t.mark)
}

// snapshot fills a frame with copies or, after the last copy, with the checkpoint. It returns false if it is not time
// for that.
func (t *tidying) snapshot(s *state, f *frame, now int64, retention time.Duration) bool {
	if !t.reached(s) {
		return false
	}
	f.asOf = t.mark
	if !t.copied {
		t.copied = true
		s.sweep(now, retention)
		for p := range s.records {
			t.todo = append(t.todo, p)
		}
		for id, x := range s.sessions {
			if !x.isGone(now) {
				f.sessions = append(f.sessions,
					sessionCopy{id: id, name: x.name, lease: x.lease, age: now - x.begun, silent: now - x.heard})
			}
		}
		f.flags |= copies
	}
	for len(t.todo) > 0 && len(f.changes) < maxChanges {
		p := t.todo[0]
		t.todo = t.todo[1:]
		if r, ok := s.records[p]; ok {
			f.flags |= copies
			if x := s.sessions[r.begun]; x != nil && x.ended { // an ended session is not copied
				r.begun = 0
			}
			f.changes = append(f.changes, change{Key: s.key(p), count: r.count, crashes: r.crashes, delay: r.due - now,
				age:   now - r.written,
				cause: r.cause, session: r.session, begun: r.begun})
		}
	}
	if f.has(copies) {
		return true
	}
	f.checkpoint = t.mark
	return true
}

// tidied notes that a frame was sent. It may be the mark, or the first frame whose checkpoint is the mark.
func (l *Log) tidied(c *link, f *frame, id pulsar.MessageID) {
	l.mu.Lock()
	t := &l.tidying
	switch {
	case t.number > 0 && f.number == t.number:
		t.mark, t.number = positionOf(id), 0
	case t.mark != (position{}) && f.checkpoint == t.mark:
		mark := t.mark
		*t = tidying{}
		l.mu.Unlock()
		c.tasks.Go(func() { l.trim(c.topic, mark) })
		return
	}
	l.mu.Unlock()
}

// trim lets the broker delete the frames before a checkpoint. After a failure, the next checkpoint deletes them too.
func (l *Log) trim(topic string, to position) {
	c, err := l.subscribe(topic)
	if c != nil {
		err = c.AckIDCumulative(to.id())
		c.Close()
	}
	if err != nil {
		l.o.Logger.Warn("attempts: the log could not be shortened; another attempt comes later", "topic", topic,
			"error", err)
	}
}

// reconnected notes that the topic could not be reached for a while. It may have been deleted and created again, so one
// of the sessions writes all records again.
func (l *Log) reconnected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tidying = tidying{forced: true, since: l.state.checkpoint}
	l.own.requeue(l.state.records)
	l.notify()
}
