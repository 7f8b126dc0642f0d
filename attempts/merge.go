package attempts

import "time"

// position is a place in the log's topic.
type position struct{ ledger, entry int64 }

func (p position) before(other position) bool {
	return p.ledger < other.ledger || p.ledger == other.ledger && p.entry < other.entry
}

// record is a message in a log. Moments are milliseconds of this machine's clock.
type record struct {
	at      position // of the frame that has the record; for a copy, the mark of the session that copied
	due     int64
	written int64
	session SessionID // session that wrote the due time
	clock   SessionID // session from whose clock due and written were converted; for a copy, the one that copied
	begun   SessionID // session whose handler has or had the message; 0 for none
	cause   string
	count   uint32
	crashes uint32
}

// join merges two records of a message. The order does not matter:
//   - the higher count and the higher number of crashes hold,
//   - if the counts are equal, the later due time holds, with its session and clock, and a cause replaces an empty one,
//   - the later time of writing and the later position hold,
//   - all other fields are those of one record: the one with the higher count; if the counts are equal, the one with
//     more crashes; if these are equal too, the one of the later frame.
func join(a, b record) record {
	if a.isBefore(b) {
		a, b = b, a
	}
	if a.count == b.count {
		if a.due < b.due {
			a.due, a.session, a.clock = b.due, b.session, b.clock
		}
		if a.cause == "" {
			a.cause = b.cause
		}
	}
	a.crashes = max(a.crashes, b.crashes)
	a.written = max(a.written, b.written)
	if a.at.before(b.at) {
		a.at = b.at
	}
	return a
}

func (r record) isBefore(other record) bool {
	switch {
	case r.count != other.count:
		return r.count < other.count
	case r.crashes != other.crashes:
		return r.crashes < other.crashes
	}
	return r.at.before(other.at)
}

// isExpired reports whether a record was written, and its message was due, longer ago than records are kept.
func (r record) isExpired(now int64, retention time.Duration) bool {
	return now-max(r.due, r.written) > retention.Milliseconds()
}
