package ledger

import (
	"math"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Disconnected tells that the connection of some topic was lost. What waits here may be another consumer's by now: it is not kept any
// longer, and either the broker sends it again or it is asked for when due. Of each topic this ends when something of it is received,
// by Received, and for requests after lostTime at the latest.
func (l *Ledger) Disconnected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.table.lost, l.table.away = true, true
	now, first := time.Now(), false // or something came since the last one
	for _, s := range l.table.streams {
		if now.Sub(s.cover.at) > coverTime {
			s.cover = cover{}
		}
		if s.lost && s.taken == s.doubted {
			s.run.early = nil
			continue
		}
		first = true
		l.table.disconnected(s, now)
		s.doubted = s.taken
		l.doubt(s)
	}
	if first {
		for slot, r := range l.table.asked {
			if r.more = r.more || time.Since(r.at) < l.o.AskDelay; r.more { // the inner consumer may send it by the next connection
				l.table.asked[slot] = r
			}
		}
	}
	if l.offer != nil && l.offer.d.Hand > 0 && !l.o.NonDurable { // what is new keeps its turn, as in doubt
		s := l.offer.d
		l.withdraw()
		if e, _ := l.table.at(s.Ref); e != nil {
			l.doubt(e.stream())
		}
	}
}

// Connected tells that there is a connection again. It may have brought a message before.
func (l *Ledger) Connected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.table.away = false
	for _, s := range l.table.streams {
		if s.run.own && s.lost && s.run.early != nil && !s.inactive {
			s.lost, s.run.heard = false, time.Now()
		}
	}
}

// doubt notes that the messages of a stream may be another consumer's, and lets go of those that wait. The caller holds mu.
func (l *Ledger) doubt(s *stream) {
	if l.o.NonDurable {
		return
	}
	for m := range l.table.messages(s) {
		m.r.flags |= doubtful
		switch {
		case m.r.state == inFlight || !m.r.isKept():
		case m.r.state != ready:
			l.table.drop(m.e, m.r)
		case l.o.RedeliversAll && !s.inactive && m.r.hand == 0: // it is new, and would be covered by a cumulative acknowledgement of one after it
		default:
			l.expect(m.ref, m.e, m.r, lostTime)
		}
	}
}

// Received tells that a message was received after a connection was lost, and reports whether Received has to be called
// further on.
func (l *Ledger) Received(topic string, id pulsar.MessageID) (more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.table.streamNamed(topic)
	if s.stage(entryOf(id)) == sure { // an operator has moved the cursor back, over a new connection, which the queue does not outlive: what comes is new
		defer s.forgetSure()
	}
	switch {
	case s.inactive, !s.lost && (s.run.early == nil || s.run.fresh != nil):
	case l.table.away: // it may have come by the connection that was lost, and be cleared
		s.run.early = append(s.run.early, id)
	default:
		s.lost, s.run.heard, s.run.fresh = false, time.Now(), id
		l.table.resends(s, id)
	}
	if l.receipts++; l.receipts%1024 != 0 { // to look at all streams takes long where there are thousands
		return true
	}
	for _, s := range l.table.streams {
		if s.isInDoubt() || time.Since(s.run.lostAt) < time.Minute {
			return true
		}
	}
	l.table.lost = false
	return false
}

// Activate tells whether a topic's messages are this consumer's, as on Failover. While they are not, what comes was prefetched and is
// another's. When they are, the broker sends all that is not acknowledged, the oldest first, so that what was received before is not
// handed out either: Received tells of the first that is. Activate reports whether messages were lost that were this consumer's.
func (l *Ledger) Activate(topic string, active bool) (lost bool) {
	l.mu.Lock()
	lost = !active && l.table.streams[topic] != nil && !l.table.streams[topic].inactive
	s := l.table.streamNamed(topic) // nothing of what was prefetched may have been taken yet
	s.run.fresh, s.run.early, s.run.own, l.table.away = nil, nil, true, false
	switch {
	case !active:
		s.inactive, s.lost = true, true // batches that were settled in part come again
		l.table.follow(s, none)         // and the rest of one comes with another delivery of it
		s.cover = cover{}               // its consumer may move the cursor back
		l.doubt(s)
		if l.offersUpTo(s, s.newest, math.MaxInt32) {
			l.withdraw() // what the feeder offers next is none of these
			if !s.gone { // by a Seek meanwhile
				l.doubt(s)
			}
		}
	default:
		s.inactive, s.run.heard = false, time.Now()
		if s.taken > 0 { // else nothing of it was acknowledged that could come again
			l.table.comesAgain(s)
			s.run.resent = s.again // and may be in the queue before it is asked for
		}
		s.lost, s.run.lostAt, s.begins, s.first = true, s.run.heard, !l.o.NonDurable, nil
		if s.missed != nil {
			l.startRounds()
		}
	}
	l.unlockAndNotify()
	return lost
}

// Empty tells that the inner consumer's queue is empty.
func (l *Ledger) Empty() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at.empty = time.Now()
}

// Idle tells that nothing came for a while although somebody waited. It returns how many messages of the fullest partition the
// broker waits for.
func (l *Ledger) Idle() (unacknowledged int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at.idle = time.Now()
	asked := map[*stream]bool{}
	for slot, r := range l.table.asked {
		if s := l.table.entries.At(slot).Value.stream(); !l.isIdleSince(s, r.at) {
			asked[s] = true
		}
	}
	for _, s := range l.table.streams {
		unacknowledged = max(unacknowledged, l.unacknowledged(s))
		if asked[s] {
			continue
		}
		if s.taken < s.again { // what was acknowledged meanwhile is not sure yet
			l.startRounds()
		}
		if !s.lost && l.at.idle.Sub(s.run.heard) >= time.Second { // nothing is on its way, as it is when something was received just now
			s.again = s.taken
			s.run.again, s.run.fresh, s.run.early, s.run.resent, s.begins, s.first = false, nil, nil, 0, false, nil
			parts := len(s.past.parts)
			if l.table.follow(s, none); len(s.past.parts) > parts {
				l.startRounds()
			}
			if !l.o.ReconnectEvents {
				s.forgetSure()
			}
		}
	}
	return unacknowledged
}

// Gone tells that a child of the inner consumer is closed, and forgets what came from it.
func (l *Ledger) Gone(consumer pulsar.Consumer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.table.streams {
		if s.consumer == consumer {
			l.table.remove(s, l.untrack)
		}
	}
}
