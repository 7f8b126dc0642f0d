package attempts

import "time"

// position is a place in the log's topic. Later ones are larger.
type position struct{ ledger, entry int64 }

func (p position) before(other position) bool {
	return p.ledger < other.ledger || p.ledger == other.ledger && p.entry < other.entry
}

// record is what a log says of a message. Moments are milliseconds of this machine's clock.
type record struct {
	at      position // where the log says so
	due     int64
	written int64
	session SessionID
	clock   SessionID // of the session that told these moments: of a copy, not the one that wrote the record
	begun   SessionID
	cause   string
	count   uint32
	crashes uint32
}

// join returns what two records of a message come to, in whatever order they are read:
//   - counts only grow,
//   - of the same count the later due time holds,
//   - what else there is to say is said by the record of the higher count, of more crashes, or that was written later.
func join(a, b record) record {
	if a.isBefore(b) {
		a, b = b, a
	}
	if a.count == b.count {
		if a.due < b.due {
			a.due, a.clock = b.due, b.clock
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

// isStale reports whether nothing was heard of a message for as long as records are kept.
func (r record) isStale(now int64, retention time.Duration) bool {
	return now-max(r.due, r.written) > retention.Milliseconds()
}
