package attempts

import "encoding/binary"

// frame is one message of the log's topic. Its records are those of the session that wrote it, except for copies.
//
// Its bytes are, in order: version, flags, session, number and checkpoint; asOf, name and lease, each if flagged; a
// table of strings; a table of sessions; the copied sessions, if flagged; the changes. Numbers are varints, session IDs
// eight bytes. Ledger and entry of a change are differences from the previous change. A record takes about ten bytes.
type frame struct {
	flags      flags
	session    SessionID
	number     uint64 // ordinal of this frame among its session's frames
	checkpoint position
	asOf       position // copies count as if they were written at this position
	name       string   // of a session that begins
	lease      int64    // in milliseconds, if flags has leases
	sessions   []sessionCopy
	changes    []change
}

type flags uint8

const (
	begins flags = 1 << iota // the session begins
	ends                     // the session ends
	copies                   // the frame has copies of records written before asOf
	resets                   // all earlier records are removed
	leases                   // the session is alive; the frame has the length of its lease
)

func (f *frame) has(flag flags) bool { return f.flags&flag != 0 }

// change is a frame's record of one failed message, or its removal. Moments are differences to the frame's own time, in
// milliseconds.
type change struct {
	Key
	removed bool
	count   uint32
	crashes uint32
	delay   int64 // until the message is due; negative if it is due already
	age     int64 // of a copied record
	cause   string
	session SessionID
	begun   SessionID
}

// sessionCopy is a copied session.
type sessionCopy struct {
	id     SessionID
	name   string
	lease  int64 // in milliseconds
	age    int64 // milliseconds since the session began
	silent int64 // milliseconds since the session was heard
}

const version = 1

// Flags of a change: which fields follow.
const (
	hasCrashes = 1 << iota
	hasBegun
	hasCause
	hasIndex
	hasDelay
	isRemoved
)

// encoder writes the bytes of a frame.
type encoder struct {
	b        []byte
	strings  map[string]uint64    // index of each text
	sessions map[SessionID]uint64 // index of each id
	texts    []string             // the table of strings
	ids      []SessionID          // the table of sessions
}

func (e *encoder) uint(n uint64) { e.b = binary.AppendUvarint(e.b, n) }
func (e *encoder) int(n int64)   { e.b = binary.AppendVarint(e.b, n) }

func (e *encoder) text(s string) {
	e.uint(uint64(len(s)))
	e.b = append(e.b, s...)
}

// intern returns the index of a text in the table of strings.
func (e *encoder) intern(s string) uint64 {
	n, ok := e.strings[s]
	if !ok {
		n = uint64(len(e.texts))
		e.strings[s] = n
		e.texts = append(e.texts, s)
	}
	return n
}

// internSession returns the index of a session in the table of sessions.
func (e *encoder) internSession(id SessionID) uint64 {
	n, ok := e.sessions[id]
	if !ok {
		n = uint64(len(e.ids))
		e.sessions[id] = n
		e.ids = append(e.ids, id)
	}
	return n
}

func (e *encoder) id(id SessionID) { e.b = binary.BigEndian.AppendUint64(e.b, uint64(id)) }

func (e *encoder) position(p position) {
	e.int(p.ledger)
	e.int(p.entry)
}

// encode returns the bytes of a frame.
func (f *frame) encode() []byte {
	head := &encoder{b: []byte{version, byte(f.flags)}}
	head.id(f.session)
	head.uint(f.number)
	head.position(f.checkpoint)
	if f.has(copies) {
		head.position(f.asOf)
	}
	if f.has(begins) {
		head.text(f.name)
	}
	if f.has(leases) {
		head.int(f.lease)
	}
	body := &encoder{strings: map[string]uint64{}, sessions: map[SessionID]uint64{f.session: 0},
		ids: []SessionID{f.session}}
	if f.has(copies) {
		body.uint(uint64(len(f.sessions)))
		for _, s := range f.sessions {
			body.uint(body.internSession(s.id))
			body.uint(body.intern(s.name))
			body.int(s.lease)
			body.int(s.age)
			body.int(s.silent)
		}
	}
	body.changes(f)
	head.uint(uint64(len(body.texts)))
	for _, s := range body.texts {
		head.text(s)
	}
	head.uint(uint64(len(body.ids) - 1))
	for _, id := range body.ids[1:] {
		head.id(id)
	}
	return append(head.b, body.b...)
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func (e *encoder) changes(f *frame) {
	e.uint(uint64(len(f.changes)))
	var last position
	for i := range f.changes {
		c := &f.changes[i]
		has := bit(c.crashes > 0)*hasCrashes | bit(c.begun != 0)*hasBegun | bit(c.cause != "")*hasCause |
			bit(c.Index != 0)*hasIndex | bit(c.delay != 0)*hasDelay | bit(c.removed)*isRemoved
		e.b = append(e.b, byte(has))
		e.uint(e.intern(c.Topic))
		e.int(c.Ledger - last.ledger)
		e.int(c.Entry - last.entry)
		last = position{c.Ledger, c.Entry}
		if has&hasIndex != 0 {
			e.uint(uint64(c.Index))
		}
		if c.removed {
			continue
		}
		e.uint(uint64(c.count))
		if has&hasCrashes != 0 {
			e.uint(uint64(c.crashes))
		}
		if has&hasBegun != 0 {
			e.uint(e.internSession(c.begun))
		}
		if has&hasCause != 0 {
			e.uint(e.intern(c.cause))
		}
		if has&hasDelay != 0 {
			e.int(c.delay)
		}
		if f.has(copies) {
			e.uint(e.internSession(c.session))
			e.int(c.age)
		}
	}
}
