package ledger

import (
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Disconnected tells that the connection of some topic was lost. What waits here may be another consumer's by now: kept
// messages are dropped, and either the broker sends them again or they are asked for when due. Connected follows.
func (l *Ledger) Disconnected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.table.lost = true
	first := false // or something came since the last one
	for _, s := range l.table.streams {
		if s.log.lost && s.log.taken == s.doubted {
			continue
		}
		first = true
		for len(s.partly) > 0 { // an operator may have moved the cursor back
			l.table.releasePart(s)
		}
		l.table.disconnected(s)
		if s.doubted = s.log.taken; !l.o.Fleeting {
			l.doubt(s)
		}
	}
	if first {
		l.mayBeSentLater()
	}
	if l.o.Fleeting {
		return
	}
	l.drop(nil)
	if l.offer != nil && l.offer.d.Hand > 0 { // what is new keeps its turn: its successor's cumulative acknowledgement would cover it
		l.withdraw()
		l.drop(nil)
	}
}

// mayBeSentLater notes which requests the inner consumer may not have sent yet, and sends by the next connection. The caller holds mu.
func (l *Ledger) mayBeSentLater() {
	for slot, r := range l.table.asked {
		if r.more = r.more || time.Since(r.at) < l.o.AskDelay; r.more {
			l.table.asked[slot] = r
		}
	}
}

// doubt notes that the messages of a stream may be another consumer's. The caller holds mu.
func (l *Ledger) doubt(s *stream) {
	for slot := s.list.head; slot != none; slot = l.table.entries.At(slot).Value.next {
		e := &l.table.entries.At(slot).Value
		for i := range e.size() {
			e.at(i).flags |= doubtful
		}
	}
}

// drop drops what is kept of a stream, nil for all, whose messages may be another consumer's. The caller holds mu.
func (l *Ledger) drop(s *stream) {
	t := &l.table
	for ref := range t.shelf.messages {
		e, r := t.at(ref)
		if s != nil && e.stream() != s {
			continue
		}
		t.drop(ref, e)
		if r.state == ready {
			t.move(ref, r, due)
			l.nacks.TrackFor(uint64(ref), l.patience())
		} else if r.state == settling && r.before == ready {
			r.before = due
			l.nacks.TrackFor(uint64(ref), l.patience())
		}
	}
}

// Connected tells that no topic is without its connection any more. Those of which another consumer has the messages are told
// again.
func (l *Ledger) Connected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.table.lost, l.at.resending = false, time.Now()
	for _, s := range l.table.streams {
		s.log.lost = s.inactive
	}
}

// Received tells that a message was received after a connection was lost, and reports whether Received has to be called
// further on.
func (l *Ledger) Received(topic string, id pulsar.MessageID) (more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.table.streams[topic]; s != nil {
		if s.run.unheard {
			l.at.resending = time.Now()
		}
		l.table.received(s, entryOf(id))
	}
	if l.receipts++; l.receipts%1024 != 0 { // to look at all streams takes long where there are thousands
		return true
	}
	more = l.table.lost
	for _, s := range l.table.streams {
		more = more || s.log.taken < s.log.again
	}
	return more
}

// Activate tells whether a topic's messages are this consumer's, as on Failover. While they are not, what comes was
// prefetched and is another's. If one of them still belongs to this consumer, it is requested afterwards.
func (l *Ledger) Activate(topic string, active bool) {
	var a ask
	l.mu.Lock()
	s := l.table.streams[topic]
	if s == nil && !active { // nothing of what was prefetched was taken yet
		s = l.table.stream(topic, nil)
	}
	switch {
	case s == nil:
	case !active:
		s.inactive, s.log.lost = true, true // batches that were settled in part come again
		l.doubt(s)
		l.drop(s)
		l.withdraw() // what the feeder offers next is none of these
		if !s.gone { // by a Seek meanwhile
			l.doubt(s)
			l.drop(s)
		}
	default:
		s.inactive = false
		l.table.comesAgain(s)
		s.run.resent = s.log.again // and may be in the queue before it is asked for
		l.at.resending = time.Now()
		if s.missed != nil {
			a = ask{s.consumer, s.topic, s.missed}
			s.missed, s.log.asking = nil, l.asking()
			l.unsent(s)
		}
	}
	l.unlock(a)
}

// Idle tells that nothing came for a while although somebody waited. It returns how many messages of the fullest partition are not
// settled.
func (l *Ledger) Idle() (unsettled int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at.idle = time.Now()
	asked := map[*stream]bool{}
	for slot, r := range l.table.asked {
		if !l.isIdleSince(r.at) {
			asked[l.table.entries.At(slot).Value.stream()] = true
		}
	}
	for _, s := range l.table.streams {
		unsettled = max(unsettled, s.unsettled)
		if !asked[s] {
			l.table.idle(s)
		}
	}
	return unsettled
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
