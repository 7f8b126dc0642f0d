package attempts

import (
	"maps"
	"time"
)

// state is the sum of the frames of a log. It takes no lock and reads no clock.
type state struct {
	topics   []string
	numbers  map[string]uint32 // of topics
	records  map[place]record
	removed  map[place]position // where a message was removed; kept while copies of older records may come
	reset    position           // where all messages were removed
	sessions map[SessionID]*session

	checkpoint position // frames before it are obsolete: later ones copy them
	last       position // of the last frame
	since      int      // changes since the checkpoint; a frame without changes counts as one
	broker     clock    // the broker's, if frames have its time
}

// place is a Key in 32 bytes.
type place struct {
	ledger, entry int64
	index         int32
	topic         uint32
}

// session is a session that the log names.
type session struct {
	name         string
	lease        int64
	begun, heard int64
	ended        bool  // it wrote that it ended
	clock        clock // of its machine, if frames do not have the broker's time
}

// clock is the clock of another machine. It is learned from frames that are read as they are written.
type clock struct {
	shift   int64 // its times plus shift are times of this machine's clock
	known   bool
	late    int   // late frames in a row: the clock may have been set back, or this machine's clock forward
	nearest int64 // the smallest difference of the late frames
}

func newState() *state {
	return &state{numbers: map[string]uint32{}, records: map[place]record{}, removed: map[place]position{},
		sessions: map[SessionID]*session{}}
}

// placeOf returns the place of a key, and gives its topic a number if needed.
func (s *state) placeOf(k Key) place {
	n, ok := s.numbers[k.Topic]
	if !ok {
		n = uint32(len(s.topics))
		s.topics = append(s.topics, k.Topic)
		s.numbers[k.Topic] = n
	}
	return k.placeIn(n)
}

// placeIn returns the place of a key whose topic has the given number here. Pulsar-client-go gives messages without a
// batch a negative index.
func (k Key) placeIn(topic uint32) place { return place{k.Ledger, k.Entry, max(0, k.Index), topic} }

func (s *state) key(p place) Key { return Key{s.topics[p.topic], p.ledger, p.entry, p.index} }

// find returns the record of a key.
func (s *state) find(k Key) (record, bool) {
	n, ok := s.numbers[k.Topic]
	if !ok {
		return record{}, false
	}
	r, ok := s.records[k.placeIn(n)]
	return r, ok
}

// put adds a record, unless the message was removed after the record was written. If a frame has both, the record is
// newer.
func (s *state) put(p place, r record) {
	if r.at.before(s.removed[p]) || r.at.before(s.reset) {
		return
	}
	if old, ok := s.records[p]; ok {
		r = join(old, r)
	}
	s.records[p] = r
}

// remove removes a message: no record that was written before counts any more.
func (s *state) remove(p place, at position) {
	if old, ok := s.removed[p]; !ok || old.before(at) {
		s.removed[p] = at
	}
	if r, ok := s.records[p]; ok && !at.before(r.at) {
		delete(s.records, p)
	}
}

// readFrame is a frame as it was read.
type readFrame struct {
	frame
	at     position
	time   int64 // when the frame was written, by the broker's or the writer's clock
	now    int64 // when the frame was read, by this machine's clock
	broker bool  // time is the broker's
	live   bool  // the frame was read as it was written
}

// apply adds a frame. Frames come in the order of the log.
func (s *state) apply(f readFrame) {
	x := s.session(f.session)
	written := f.time + s.adjust(f, x)
	x.heard = max(x.heard, written)
	if f.live {
		x.heard = f.now
	}
	if f.has(begins) {
		x.name, x.ended = f.name, false
		if x.begun == 0 { // after a lost connection a session keeps its first time
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
		if at.before(s.checkpoint) { // s already has a later checkpoint, and forgot the removals before it
			f.sessions, f.changes = nil, nil
		}
		for _, c := range f.sessions {
			s.addCopied(c, written)
		}
	}
	if f.has(resets) {
		s.reset = f.at
		clear(s.removed)
		maps.DeleteFunc(s.records, func(_ place, r record) bool { return r.at.before(f.at) })
	}
	for _, c := range f.changes {
		p := s.placeOf(c.Key)
		if c.removed {
			s.remove(p, f.at)
			continue
		}
		due := written + c.delay
		if c.delay <= 0 { // due before the frame was written, so before it was read; written may be some ms too late
			due = min(due, f.now-rounding)
		}
		s.put(p, record{at: at, due: due, written: written - c.age, session: c.session, clock: f.session,
			begun: c.begun, cause: c.cause,
			count: c.count, crashes: c.crashes})
	}
	s.last = f.at
	s.since += max(1, len(f.changes)) // frames without changes make the log longer, too
	// a checkpoint that is not before its own frame is a position in another topic: ignore it
	if s.checkpoint.before(f.checkpoint) && f.checkpoint.before(f.at) {
		s.checkpoint, s.since = f.checkpoint, 0
		maps.DeleteFunc(s.removed, func(_ place, at position) bool { return at.before(f.checkpoint) })
		// remove records that were not copied: this session missed their removals, which the broker has deleted
		maps.DeleteFunc(s.records, func(_ place, r record) bool { return r.at.before(f.checkpoint) })
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

// addCopied adds a session that another session has copied.
func (s *state) addCopied(c sessionCopy, written int64) {
	x := s.sessions[c.id]
	if x == nil {
		x = &session{begun: written - c.age, heard: written - c.silent}
		s.sessions[c.id] = x
	}
	x.name, x.lease = c.name, max(x.lease, c.lease)
}

const (
	minShift = 5    // in milliseconds: a smaller change of a clock's shift is ignored, since all records would change
	setShift = 1000 // in milliseconds: if a frame seems later by this much, it was slow, or a clock was set
	setAfter = 8    // late frames in a row that show that a clock was set
)

// learn learns from a frame that was read as it was written. difference is the time of reading, by this machine's
// clock, minus the time of writing. It includes the time that the frame was under way, so the smallest difference is
// the best one. A larger one makes due times late, never early. learn returns how much to add to times that were
// converted from c.
func (c *clock) learn(difference int64) (by int64) {
	switch {
	case !c.known || difference <= c.shift-minShift:
	case difference < c.shift+setShift:
		c.late = 0
		return 0
	default:
		if c.late == 0 || difference < c.nearest {
			c.nearest = difference
		}
		c.late++
		if c.late < setAfter {
			return 0
		}
		difference = c.nearest
	}
	by = difference - c.shift
	c.shift, c.known, c.late = difference, true, 0
	return by
}

// adjust returns how much to add to the time of a frame.
func (s *state) adjust(f readFrame, x *session) int64 {
	c, isMoved := &x.clock, func(r record) bool { return r.clock == f.session }
	if f.broker {
		c, isMoved = &s.broker, func(record) bool { return true }
	}
	if f.live {
		if by := c.learn(f.now - f.time); by != 0 {
			s.move(by, isMoved)
		}
	}
	return c.shift
}

// move shifts the times of each record that isMoved accepts.
func (s *state) move(by int64, isMoved func(record) bool) {
	for p, r := range s.records {
		if isMoved(r) {
			r.due, r.written = r.due+by, r.written+by
			s.records[p] = r
		}
	}
}

// sweep forgets expired records, and sessions that have been silent for the retention.
func (s *state) sweep(now int64, retention time.Duration) {
	maps.DeleteFunc(s.records, func(_ place, r record) bool { return r.isExpired(now, retention) })
	maps.DeleteFunc(s.sessions, func(_ SessionID, x *session) bool {
		return (x.isGone(now) || x.lease == 0) && now-x.heard > retention.Milliseconds()
	})
}

// isLost reports whether a session was silent for longer than its lease, and did not write that it ended.
func (x *session) isLost(now int64) bool { return !x.ended && x.lease > 0 && now-x.heard > x.lease }

// isGone reports whether a session has ended, or is lost even if its clock is wrong by clockSlack. tidying does not
// copy such a session: a session that the log does not name counts as lost.
func (x *session) isGone(now int64) bool {
	return x.ended || x.isLost(now-clockSlack.Milliseconds())
}
