package attempts

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

var errShort = errors.New("the frame ends early")

// decoder reads the bytes of an encoder. After an error it reads zeros.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.b = nil
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail(errShort)
		return 0
	}
	b := d.b[0]
	d.b = d.b[1:]
	return b
}

func (d *decoder) uint() uint64 {
	n, size := binary.Uvarint(d.b)
	if size <= 0 {
		d.fail(errShort)
		return 0
	}
	d.b = d.b[size:]
	return n
}

func (d *decoder) int() int64 {
	n, size := binary.Varint(d.b)
	if size <= 0 {
		d.fail(errShort)
		return 0
	}
	d.b = d.b[size:]
	return n
}

// count reads how many items follow, each of at least size bytes.
func (d *decoder) count(size int) int {
	n := d.uint()
	if n > uint64(len(d.b)/size) {
		d.fail(errShort)
		return 0
	}
	return int(n)
}

func (d *decoder) text() string {
	n := d.count(1)
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

func (d *decoder) id() SessionID {
	if len(d.b) < 8 {
		d.fail(errShort)
		return 0
	}
	id := SessionID(binary.BigEndian.Uint64(d.b))
	d.b = d.b[8:]
	return id
}

func (d *decoder) position() position { return position{d.int(), d.int()} }

// small reads a number of at most limit.
func (d *decoder) small(limit uint64) uint32 {
	n := d.uint()
	if n > limit {
		d.fail(fmt.Errorf("the frame has the number %d, want at most %d", n, limit))
		return 0
	}
	return uint32(n)
}

// moment reads a difference between two moments, in milliseconds. It refuses a difference so large that the sum of two
// could overflow.
func (d *decoder) moment() int64 {
	n := d.int()
	if n > math.MaxInt64/4 || n < math.MinInt64/4 {
		d.fail(fmt.Errorf("a difference of %d ms is too large", n))
		return 0
	}
	return n
}

// pick reads an index into a table, and returns the entry there.
func pick[T any](d *decoder, table []T) (t T) {
	n := d.uint()
	if n >= uint64(len(table)) {
		d.fail(fmt.Errorf("the frame names entry %d of a table of %d", n, len(table)))
		return t
	}
	return table[n]
}

// decode reads the bytes of a frame.
func decode(b []byte) (f frame, err error) {
	d := &decoder{b: b}
	if v := d.byte(); d.err == nil && v != version {
		return f, fmt.Errorf("attempts: a frame of version %d, want %d", v, version)
	}
	f.flags = flags(d.byte())
	f.session, f.number, f.checkpoint = d.id(), d.uint(), d.position()
	if f.has(copies) {
		f.asOf = d.position()
	}
	if f.has(begins) {
		f.name = d.text()
	}
	if f.has(leases) {
		f.lease = max(0, d.moment())
	}
	texts := make([]string, d.count(1))
	for i := range texts {
		texts[i] = d.text()
	}
	ids := []SessionID{f.session}
	for range d.count(8) {
		ids = append(ids, d.id())
	}
	if f.has(copies) {
		for range d.count(5) {
			c := sessionCopy{id: pick(d, ids), name: pick(d, texts)}
			c.lease, c.age, c.silent = max(0, d.moment()), d.moment(), d.moment()
			f.sessions = append(f.sessions, c)
		}
	}
	d.changes(&f, texts, ids)
	switch {
	case d.err != nil:
		return frame{}, fmt.Errorf("attempts: a frame of %d bytes cannot be read: %w", len(b), d.err)
	case len(d.b) > 0:
		return frame{}, fmt.Errorf("attempts: a frame of %d bytes has %d bytes too many", len(b), len(d.b))
	}
	return f, nil
}

func (d *decoder) changes(f *frame, texts []string, ids []SessionID) {
	n := d.count(4)
	f.changes = make([]change, 0, n)
	var last position
	for range n {
		has := d.byte()
		c := change{removed: has&isRemoved != 0, session: f.session}
		c.Topic = pick(d, texts)
		last.ledger += d.int()
		last.entry += d.int()
		c.Ledger, c.Entry = last.ledger, last.entry
		if has&hasIndex != 0 {
			c.Index = int32(d.small(math.MaxInt32))
		}
		if !c.removed {
			c.count = d.small(math.MaxUint32)
			if has&hasCrashes != 0 {
				c.crashes = d.small(math.MaxUint32)
			}
			if has&hasBegun != 0 {
				c.begun = pick(d, ids)
			}
			if has&hasCause != 0 {
				c.cause = pick(d, texts)
			}
			if has&hasDelay != 0 {
				c.delay = d.moment()
			}
			if f.has(copies) {
				c.session, c.age = pick(d, ids), d.moment()
			}
		}
		f.changes = append(f.changes, c)
	}
}
