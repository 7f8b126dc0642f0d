package attempts

import (
	"maps"
	"time"
)

// state is the sum of the frames of a log. It takes no lock, reads no clock and calls nothing.
type state struct {
	topics   []string
	numbers  map[string]uint32 // of topics
	records  map[place]record
	removed  map[place]position // where a message was removed, for as long as copies of older records may come
	reset    position           // where all were
	sessions map[SessionID]*session

	checkpoint position // all that was written before it was copied after it
	last       position // of the last frame
	since      int      // changes since the checkpoint, and frames without any
	broker     clock    // where frames have its time
}

// place is a Key in 32 bytes.
type place struct {
	ledger, entry int64
	index         int32
	topic         uint32
}

// session is one that the log names.
type session struct {
	name         string
	lease        int64
	begun, heard int64
	ended        bool  // and said so
	clock        clock // where frames have its time
}

// clock is the clock of a machine: how much to add for this machine's, if a frame was read as it was written.
type clock struct {
	shift   int64
	known   bool
	later   int   // frames in a row that say that it is set to an earlier time, or this machine's to a later one
	nearest int64 // of these
}

func newState() *state {
	return &state{numbers: map[string]uint32{}, records: map[place]record{}, removed: map[place]position{},
		sessions: map[SessionID]*session{}}
}

// place returns the place of a key, whose topic it remembers.
func (s *state) place(k Key) place {
	n, ok := s.numbers[k.Topic]
	if !ok {
		n = uint32(len(s.topics))
		s.topics = append(s.topics, k.Topic)
		s.numbers[k.Topic] = n
	}
	return k.in(n)
}

// in is the place of a key in a topic of the log. An index is negative where pulsar-client-go says that there is no
// batch.
func (k Key) in(topic uint32) place { return place{k.Ledger, k.Entry, max(0, k.Index), topic} }

func (s *state) key(p place) Key { return Key{s.topics[p.topic], p.ledger, p.entry, p.index} }

// find returns the record of a key.
func (s *state) find(k Key) (record, bool) {
	n, ok := s.numbers[k.Topic]
	if !ok {
		return record{}, false
	}
	r, ok := s.records[k.in(n)]
	return r, ok
}

// put takes a record, unless the message was removed since it was written.
func (s *state) put(p place, r record) {
	if at, ok := s.removed[p]; ok && !at.before(r.at) || r.at.before(s.reset) {
		return
	}
	if old, ok := s.records[p]; ok {
		r = join(old, r)
	}
	s.records[p] = r
}

// remove takes a removal: nothing that was written before it counts any more.
func (s *state) remove(p place, at position) {
	if old, ok := s.removed[p]; !ok || old.before(at) {
		s.removed[p] = at
	}
	if r, ok := s.records[p]; ok && !at.before(r.at) {
		delete(s.records, p)
	}
}

// read is a frame as it was read.
type read struct {
	frame
	at     position
	time   int64 // when it was written, by the broker's clock or the writer's
	now    int64 // when it was read, by this machine's
	broker bool  // time is the broker's
	live   bool  // it was read as it was written
}

// apply takes a frame. Frames come in the order of the log.
func (s *state) apply(f read) {
	x := s.session(f.session)
	written := f.time + s.adjust(f, x)
	x.heard = max(x.heard, written)
	if f.live {
		x.heard = f.now
	}
	if f.has(begins) {
		x.name, x.ended = f.name, false
		if x.begun == 0 { // else it is back
			x.begun = written
		}
	}
	if f.lease > 0 {
		x.lease = f.lease
	}
	if f.has(ends) {
		x.ended = true
	}
	at := f.at
	if f.has(copies) {
		at = f.asOf
		if at.before(s.checkpoint) { // another was faster, and removals since are not known any more
			f.sessions, f.changes = nil, nil
		}
		for _, c := range f.sessions {
			s.copied(c, written)
		}
	}
	if f.has(resets) {
		s.reset = f.at
		clear(s.removed)
		maps.DeleteFunc(s.records, func(_ place, r record) bool { return r.at.before(f.at) })
	}
	for _, c := range f.changes {
		p := s.place(c.Key)
		if c.removed {
			s.remove(p, f.at)
			continue
		}
		s.put(p, record{at: at, due: written + c.delay, written: written - c.age, session: c.session, clock: f.session,
			begun: c.begun, cause: c.cause,
			count: c.count, crashes: c.crashes})
	}
	s.last = f.at
	s.since += max(1, len(f.changes)) // a session that only says that it lives makes the log longer too
	// One that is not before its own frame is of another topic.
	if s.checkpoint.before(f.checkpoint) && f.checkpoint.before(f.at) {
		s.checkpoint, s.since = f.checkpoint, 0
		maps.DeleteFunc(s.removed, func(_ place, at position) bool { return at.before(f.checkpoint) })
	}
}

func (s *state) session(id SessionID) *session {
	x := s.sessions[id]
	if x == nil {
		x = &session{}
		s.sessions[id] = x
	}
	return x
}

// copied takes another session's record of a session.
func (s *state) copied(c sessionCopy, written int64) {
	x := s.sessions[c.id]
	if x == nil {
		x = &session{begun: written - c.age, heard: written - c.silent}
		s.sessions[c.id] = x
	}
	x.name, x.lease = c.name, max(x.lease, c.lease)
}

const (
	minShift = 5    // the change of a clock that is worth changing all records for
	setShift = 1000 // a frame that is later than that was slow, or a clock was set
	setAfter = 8    // which so many of them in a row say
)

// learn takes a frame that was read as it was written, a little earlier: the smallest difference is nearest, and no due
// time comes early by any. It returns by how much moments of this clock move.
func (c *clock) learn(difference int64) (by int64) {
	switch {
	case !c.known || difference <= c.shift-minShift:
	case difference < c.shift+setShift:
		c.later = 0
		return 0
	default:
		if c.later == 0 || difference < c.nearest {
			c.nearest = difference
		}
		c.later++
		if c.later < setAfter {
			return 0
		}
		difference = c.nearest
	}
	by = difference - c.shift
	c.shift, c.known, c.later = difference, true, 0
	return by
}

// adjust returns how much to add to the time of a frame.
func (s *state) adjust(f read, x *session) int64 {
	c, of := &x.clock, func(r record) bool { return r.clock == f.session }
	if f.broker {
		c, of = &s.broker, func(record) bool { return true }
	}
	if f.live {
		if by := c.learn(f.now - f.time); by != 0 {
			s.move(by, of)
		}
	}
	return c.shift
}

// move moves the moments of records.
func (s *state) move(by int64, of func(record) bool) {
	for p, r := range s.records {
		if of(r) {
			r.due, r.written = r.due+by, r.written+by
			s.records[p] = r
		}
	}
}

// sweep forgets records that no process has written about for long.
func (s *state) sweep(now int64, retention time.Duration) {
	maps.DeleteFunc(s.records, func(_ place, r record) bool { return r.isStale(now, retention) })
	maps.DeleteFunc(s.sessions, func(_ SessionID, x *session) bool {
		return (x.isGone(now) || x.lease == 0) && now-x.heard > retention.Milliseconds()
	})
}

// isLost reports whether a session has not been heard for its lease, and did not say that it ended.
func (x *session) isLost(now int64) bool { return !x.ended && x.lease > 0 && now-x.heard > x.lease }

// isGone reports whether a session has ended, or is lost whatever its clock says. A session that is not known is lost,
// so that nothing has to be said of it.
func (x *session) isGone(now int64) bool {
	return x.ended || x.isLost(now-clockSlack.Milliseconds())
}
