package ledger

import (
	"slices"

	"github.com/apache/pulsar-client-go/pulsar"
)

// part is an entry of which what is here is settled, and the broker may have more.
type part struct {
	slot   uint32
	rounds uint64 // that had passed then
	asked  bool   // finishParts has asked for it
}

// finishParts returns requests for the batches of which other consumers have settled the rest. By index acknowledgements a broker may not notice
// that it has them all (Pulsar 4.0, 4.2), and sends no other consumer what has the same key as long as this one is there. When it is asked, it
// lets go of the batch; there is nothing left to send. The caller holds mu.
func (l *Ledger) finishParts(s *stream) (asks []ask) {
	if l.indexAcks == NoIndexAcks || l.o.RedeliversAll {
		return nil
	}
	for i := range s.past.parts {
		switch p := &s.past.parts[i]; {
		case p.asked:
		case !s.isSure(p.rounds):
			l.roundsLeft = max(l.roundsLeft, 2)
		default:
			p.asked = true
			asks = append(asks, ask{s.consumer, s.topic, l.table.entries.At(p.slot).Value.someID()})
		}
	}
	return asks
}

// someID returns the id of a message of an entry.
func (e *entry) someID() (id pulsar.MessageID) {
	for i := range e.size() {
		if r := e.seen(i); r != nil {
			id = r.id()
		}
	}
	return id
}

// maxParts is how many parts of a stream are remembered though they are sure. There is one for each connection that was lost, and for each
// batch whose rest another consumer had.
const maxParts = 16

// releaseParts lets go of parts that are sure, those that are there for longest, until so many are left. What was acknowledged of a batch may
// not have reached the broker, which waits for the rest; it comes again then, with the next connection at the latest, which has to be told.
func (t *table) releaseParts(s *stream, left int) {
	if !t.o.ReconnectEvents {
		left = 0
	}
	for len(s.past.parts) > left && (s.gone || s.isSure(s.past.parts[0].rounds)) {
		slot := s.past.parts[0].slot
		s.past.parts = s.past.parts[1:]
		t.release(slot, &t.entries.At(slot).Value)
	}
}

// notPart notes that more of a part comes.
func (p *past) notPart(slot uint32) {
	p.parts = slices.DeleteFunc(p.parts, func(part part) bool { return part.slot == slot })
}
