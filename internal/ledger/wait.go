package ledger

import (
	"math"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

const (
	// What was asked for is looked after so often. A try is one time of it.
	check = 6 * time.Second
	// What was asked for and did not come went to another consumer, or is gone. Where the broker rewinds there is no count at
	// the broker to fall back on, so the own one is kept for longer than a dead link may take to be noticed.
	patienceShared, triesShared   = check, 1
	patienceRewinds, triesRewinds = 5 * check, 20
	// answerTime is how long the broker may take for an answer before an empty queue shows that there is none.
	answerTime = 4 * time.Second
)

// patience is for how long a request is not repeated, unless nothing comes.
func (l *Ledger) patience() time.Duration {
	if l.o.RedeliversAll {
		return patienceRewinds + l.o.AskDelay
	}
	return patienceShared + l.o.AskDelay
}

// ask is a request for a message; consumer is nil for none.
type ask struct {
	consumer pulsar.Consumer
	topic    string
	id       pulsar.MessageID
}

// unlockAndNotify releases mu, and then makes the calls that are due: it tells of the timeouts that were noted, asks, and wakes who is to look at
// what is ready.
func (l *Ledger) unlockAndNotify(asks ...ask) {
	reports := l.reports
	l.reports = nil
	l.mu.Unlock()
	for _, s := range reports {
		l.o.Calls.TimedOut(s)
	}
	for _, a := range asks {
		if a.consumer != nil {
			l.o.Calls.Ask(a.consumer, a.topic, a.id)
		}
	}
	if l.hasNext.Load() {
		l.o.Calls.Wake()
	}
}

// delaysOver acts for messages whose delay is over, or whose request was not answered in time.
func (l *Ledger) delaysOver(keys []uint64) {
	asks := make([]ask, 0, len(keys))
	l.mu.Lock()
	for _, key := range keys {
		ref := Ref(key)
		e, r := l.table.at(ref)
		if r == nil || l.nacks.Tracks(key) || r.flags.has(busy) {
			continue // it moved on since, or unsettle looks whether its time is over
		}
		switch r.state {
		case waiting:
			asks = append(asks, l.over(ref, e, r))
		case due:
			asks = append(asks, l.ask(ref, e, r))
		case ready: // for too long
			if l.mayGiveBack(ref, e, r) {
				asks = append(asks, l.giveBack(ref, e, r))
			} else {
				l.nacks.TrackFor(key, l.readyPatience())
			}
		case inFlight:
			if r.flags.has(doubtful) {
				asks = append(asks, l.ask(ref, e, r))
			}
		default: // it moved on since
		}
	}
	l.unlockAndNotify(asks...)
}

// timeoutsOver acts for messages that the application has for too long.
func (l *Ledger) timeoutsOver(keys []uint64) {
	asks := make([]ask, 0, len(keys))
	var last []Delivery
	l.mu.Lock()
	for _, key := range keys {
		ref := Ref(key)
		e, r := l.table.at(ref)
		if r == nil || l.timeouts.Tracks(key) || r.state != inFlight || !r.flags.has(timed) || r.flags.has(busy) {
			continue // likewise
		}
		switch {
		case r.isKept() && !r.flags.has(doubtful) && l.IsLast(r.count):
			r.flags &^= timed
			last = append(last, deliveryOf(ref, e, r))
		default:
			asks = append(asks, l.timeoutOver(ref, e, r))
		}
	}
	l.unlockAndNotify(asks...)
	for _, d := range last {
		l.o.Calls.GiveUp(d)
	}
}

// timeoutOver acts for a message that the application has for too long. Another consumer may do better with it. The caller holds mu.
func (l *Ledger) timeoutOver(ref Ref, e *entry, r *record) ask {
	r.flags &^= timed
	if l.o.Calls.TimedOut != nil {
		l.reports = append(l.reports, Settling{})
		l.describe(ref, e, r, &l.reports[len(l.reports)-1])
		l.waitsFor(ref, e, 0, TimedOut)
	}
	l.failed(ref)
	switch {
	case !l.o.Keeps || r.flags.has(doubtful):
		l.table.drop(e, r)
	case l.o.Others && r.isKept() && !l.hasSiblingsAtWork(e, r):
		return l.giveBack(ref, e, r)
	}
	return l.over(ref, e, r)
}

// over acts for a message whose time is over: it is handed out from here, or asked for. The caller holds mu.
func (l *Ledger) over(ref Ref, e *entry, r *record) ask {
	if !r.isKept() {
		l.table.move(r, due)
		return l.ask(ref, e, r)
	}
	if l.isBetterElsewhere(ref, r) && l.mayGiveBack(ref, e, r) {
		return l.giveBack(ref, e, r)
	}
	l.makeReady(ref, r)
	return ask{}
}

// makeReady has Next hand a message out. The caller holds mu.
func (l *Ledger) makeReady(ref Ref, r *record) {
	l.table.move(r, ready)
	l.table.ready = append(l.table.ready, ref)
	l.hasNext.Store(true)
	if l.o.Others {
		l.nacks.TrackFor(uint64(ref), l.readyPatience())
	}
}

// ask requests a message that is due, unless its answer may be on its way, and looks after it again. The caller holds mu.
func (l *Ledger) ask(ref Ref, e *entry, r *record) (a ask) {
	t, s := &l.table, e.stream()
	last, key := t.asked[ref.slot()], t.entries.At(ref.slot()).Key
	tries, missing := uint8(triesShared), true
	if l.o.RedeliversAll { // often, if the application is slow and has others, of which each starts from the oldest again
		tries, missing = triesRewinds, !s.run.last.before(key) || l.isIdleSince(s, last.at)
	}
	if s.run.own && !s.lost && r.flags.has(doubtful) && last.at.IsZero() && !l.o.RedeliversAll {
		last.at = s.run.heard // the broker sends it, now or when another consumer leaves: to ask for it while it is in the queue would send it to another, too
	}
	away := s.lost && time.Since(s.run.lostAt) >= awayTime
	switch {
	case s.inactive: // the broker sends it to whoever it is for
	case s.lost && time.Since(s.run.lostAt) < lostTime: // likewise
		l.nacks.TrackFor(uint64(ref), lostTime-time.Since(s.run.lostAt))
		return a
	case r.flags.has(doubtful) && l.isResending(s): // and its copy may be in the queue
		if l.mayCome(s, &last) { // beside it
			t.asked[ref.slot()] = last
		}
		l.nacks.TrackFor(uint64(ref), resendTime)
		return a
	case r.state == inFlight && missing && last.tries > tries: // others of its batch wait here, and are asked for again and again
		l.disown(ref, e, r)
		return a
	case l.mayCome(s, &last):
		t.asked[ref.slot()] = last
		if last.tries == 0 { // the answer came once, so that nobody waits for it who would tell the end of this
			l.nacks.TrackFor(uint64(ref), time.Second)
			return a
		}
	case away && l.o.RedeliversAll && !s.run.to.before(key) && l.isIdleSince(s, s.run.asked.at): // it was asked for with another one, in vain
		l.disown(ref, e, r)
		return a
	case l.o.RedeliversAll && !s.run.to.before(key) && l.mayCome(s, &s.run.asked), last.tries == 0 && t.isComing(ref, e):
	case missing && (!s.lost || away || r.state == inFlight) && (last.tries > tries || last.tries > 0 && r.flags.has(doubtful)):
		l.disown(ref, e, r)
		return a
	default:
		if !l.o.RedeliversAll {
			l.letGo(ref, e, r)
		}
		if s.taken < s.run.resent && s.run.resent < s.again { // the answer comes beside what is sent again
			s.run.resent += uint64(e.size())
		}
		now := time.Now()
		if last.tries == 0 {
			last.tries = 1
		} else if missing {
			last.tries = uint8(min(math.MaxUint8, int64(last.tries)+int64(min(l.patience(), now.Sub(last.at))/check)))
		}
		t.asked[ref.slot()] = request{at: now, tries: last.tries, more: last.tries > 1}
		s.run.asked, s.run.to = request{at: now}, s.newest
		s.run.answers = s.run.answers || s.lost
		a = ask{s.consumer, s.topic, t.newest(ref, r)}
	}
	wait := check + l.o.AskDelay
	if s.lost && !s.inactive { // its topic may be away for long
		wait = max(wait, time.Since(s.run.lostAt)/4)
	}
	l.nacks.TrackFor(uint64(ref), wait)
	return a
}

// answered notes that a copy of an entry came, which may be the answer to a request. The caller holds mu.
func (l *Ledger) answered(slot uint32) (asked time.Time) {
	r := l.table.asked[slot]
	if r.more && !l.o.RedeliversAll { // and this may have been the answer to the earlier one
		l.table.asked[slot] = request{at: r.at}
	} else {
		delete(l.table.asked, slot)
	}
	return r.at
}

// resendTime is how long the broker may take after a reconnection until the first message of what it sends again is here.
const resendTime = 2 * time.Second

// lostTime is for how long nothing is asked for of a topic whose connection may be lost: the broker sends it again. It is the topic's own,
// since upstream does not tell whose connection was lost, nor of each one's end.
const lostTime = 5 * time.Second

// awayTime is for how long a topic may be away, with nothing received since a connection was lost. Messages that are asked for in vain
// meanwhile are not forgotten.
const awayTime = time.Hour

// isResending reports whether what the last connection had may be on its way. Of a topic whose connection was not lost nothing is: what is
// received of it first was not seen before. Nor is anything if nothing came since although somebody waited, or if the queue was empty long after
// that. The caller holds mu.
func (l *Ledger) isResending(s *stream) bool {
	return !s.lost && (s.taken < s.run.resent || s.awaitsFirst()) && l.at.idle.Sub(s.run.heard) <= resendTime &&
		l.at.empty.Sub(s.run.heard) <= l.o.AskDelay+answerTime
}

// isIdleSince reports whether nothing was on its way after a request was answered. Requests wait behind the acknowledgements under way. The caller
// holds mu.
func (l *Ledger) isIdleSince(s *stream, asked time.Time) bool {
	return s.acks == 0 && l.at.idle.Sub(asked) > l.o.AskDelay+answerTime
}

// mayCome reports whether the answer to a request may be on its way: until a queue of deliveries was taken after it was
// surely sent, or the queue was empty long after that, or nothing was on its way at all. The caller holds mu.
func (l *Ledger) mayCome(s *stream, r *request) bool {
	switch {
	case r.at.IsZero() || l.isIdleSince(s, r.at) || s.acks == 0 && l.at.empty.Sub(r.at) > l.o.AskDelay+answerTime:
		return false
	case time.Since(r.at) < l.patience():
		return true
	case r.taken == 0:
		r.taken = s.taken + 2*l.table.queue(s) + uint64(s.unsettled)
	}
	return s.taken < r.taken
}
