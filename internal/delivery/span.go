package delivery

import "time"

// span is a stretch of a partition that cumulative acknowledgements settled. Where the broker rewinds it is known for as
// long as copies of what is in it may be late; the entries themselves are not.
type span struct {
	from, to Key
	some     bool
	since    time.Time // of the first acknowledgement
	at       time.Time // of the last
}

// add extends a span by an entry.
func (p *span) add(id entryID, size int32) {
	from, to := id.key(0), id.key(size-1)
	if !p.some || from.before(p.from) {
		p.from = from
	}
	if !p.some || p.to.before(to) {
		p.to = to
	}
	p.some = true
}

// passed notes a span. Those of about one time become one.
func (s *stream) passed(p *span) {
	if !p.some {
		return
	}
	if n := len(s.spans); n > 0 && p.at.Sub(s.spans[n-1].since) < 50*time.Millisecond && s.spans[n-1].to.before(p.from) {
		s.spans[n-1].to, s.spans[n-1].at = p.to, p.at
		return
	}
	s.spans = append(s.spans, *p)
}

// hasPassed reports whether a message that is not known is a late copy of one in a span.
func (t *Table) hasPassed(s *stream, key Key, now time.Time) bool {
	n := len(s.spans)
	if n == 0 || s.spans[n-1].to.before(key) {
		return false
	}
	if _, known := t.entries.Find(key.entryID()); known {
		return false
	}
	late := t.late()
	for _, p := range s.spans {
		if !key.before(p.from) && !p.to.before(key) && now.Sub(p.at) <= late {
			return true
		}
	}
	return false
}

// expireSpans lets go of spans of which no copies are to be expected any more.
func (t *Table) expireSpans(s *stream, now time.Time) {
	for len(s.spans) > 0 && now.Sub(s.spans[0].at) > t.late() {
		s.spans = s.spans[1:]
	}
}
