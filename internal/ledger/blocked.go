package ledger

import (
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// unacknowledged returns how many messages of a partition the broker waits for: all of a batch of which one is not settled, unless the broker
// keeps acknowledgements of single messages. The caller holds mu.
func (l *Ledger) unacknowledged(s *stream) (n int) {
	if l.indexAcks == KeptIndexAcks {
		return s.unsettled
	}
	return l.table.begun(s)
}

// begun returns how many messages the entries have of which one is not settled.
func (t *table) begun(s *stream) (n int) {
	for _, e := range t.unsettled(s) {
		n += int(e.size())
	}
	for _, p := range s.past.parts {
		n += int(t.entries.At(p.slot).Value.size())
	}
	return n
}

// Consumers returns the children of the inner consumer of which something came.
func (l *Ledger) Consumers() (all []pulsar.Consumer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.table.streams {
		if s.consumer != nil && !slices.Contains(all, s.consumer) {
			all = append(all, s.consumer)
		}
	}
	return all
}

// IsBehind reports whether a topic has a message after the newest one that came. It is false if no message of the topic came.
func (l *Ledger) IsBehind(topic string, last pulsar.MessageID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.table.streams[topic]
	return s != nil && !s.inactive && s.newest.before(entryOf(last))
}

// Waiting is a message that waits here.
type Waiting struct {
	Delivery
	Delay time.Duration // until it is due
}

// Waits returns messages that wait here for so long still and are all that the broker waits for of their entries, those of the oldest
// entries first: of the partition with most that are unacknowledged, until so many of these are covered.
func (l *Ledger) Waits(atLeast time.Duration, covers int) (all []Waiting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var fullest *stream
	most := 0
	for _, s := range l.table.streams {
		if n := l.unacknowledged(s); n > most {
			fullest, most = s, n
		}
	}
	if fullest == nil {
		return nil
	}
	for slot, e := range l.table.unsettled(fullest) {
		if covers <= 0 {
			break
		}
		if of := l.waitsOf(slot, e, atLeast); len(of) > 0 {
			all = append(all, of...)
			covers -= int(e.size())
		}
	}
	return all
}

// waitsOf returns the unsettled messages of an entry, if all of them wait here for so long and may be published elsewhere. The caller holds mu.
func (l *Ledger) waitsOf(slot uint32, e *entry, atLeast time.Duration) (all []Waiting) {
	if e.isBatch() && e.batch.seen < e.size() {
		return nil
	}
	for i := range e.size() {
		ref := refOf(slot, i)
		switch r := e.at(i); {
		case r.state == acked:
		case r.state == waiting && r.isKept() && r.flags&(busy|leaving|uncounted|doubtful) == 0:
			left, _ := l.nacks.Left(uint64(ref))
			if left < atLeast {
				return nil
			}
			all = append(all, Waiting{deliveryOf(ref, e, r), left})
		default:
			return nil
		}
	}
	return all
}
