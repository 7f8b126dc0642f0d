package pulsartest

import (
	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// ack acknowledges the entries that m names, whichever consumer has them.
func (s *subscription) ack(m *cmdAck) {
	if m.AckType == wire.Cumulative {
		if !s.individual() && len(m.IDs) == 1 { // Shared and Key_Shared ignore cumulative acknowledgements
			s.ackCumulative(&m.IDs[0])
		}
	} else {
		last, pastEnd := s.topic.last(), false
		for i := range m.IDs {
			id := &m.IDs[i]
			pastEnd = pastEnd || id.Ledger > last.Ledger || id.Ledger == last.Ledger && id.Entry > last.Entry
			s.ackOne(id, pastEnd)
		}
	}
	s.dispatch()
}

// ackOne acknowledges an entry or, if id has an AckSet, messages of its batch. It takes an acknowledged entry from its
// consumer. If pastEnd is set, it takes the entry, but does not acknowledge it. pastEnd means that this ID, or an
// earlier ID of the same command, is past the end of the topic. From the first such ID on, the real broker acknowledges
// no entry of the command, and sends these entries again when the consumer has gone.
func (s *subscription) ackOne(id *wire.MessageID, pastEnd bool) {
	offset, found := s.topic.find(id.Ledger, id.Entry)
	if !found || s.cursor.acked(offset) {
		return
	}
	delete(s.counts, offset)
	if n := s.topic.log[offset].messages; len(id.AckSet) > 0 {
		if !s.topic.server.indexAcks || pastEnd {
			return
		}
		if left := s.cursor.ackIndexes(offset, n, id.AckSet); left > 0 {
			if p, ok := s.pending[offset]; ok {
				p.consumer.add(left - p.messages)
				p.messages = left
				s.pending[offset] = p
			}
			return
		}
	}
	s.unpend(offset)
	if !pastEnd {
		s.cursor.ack(offset)
		s.replay.remove(offset)
	}
}

// ackCumulative acknowledges everything up to id. It does nothing if id is past the end of the topic, or in a ledger
// that the topic does not have.
func (s *subscription) ackCumulative(id *wire.MessageID) {
	if id.Entry == beforeFirst {
		if offset, found := s.topic.find(id.Ledger, 0); found {
			s.cursor.ackUpTo(offset)
		}
		return
	}
	offset, found := s.topic.find(id.Ledger, id.Entry)
	switch {
	case !found:
	case len(id.AckSet) > 0:
		s.cursor.ackUpTo(offset)
		if s.topic.server.indexAcks {
			s.cursor.ackIndexes(offset, s.topic.log[offset].messages, id.AckSet)
		}
	default:
		s.cursor.ackUpTo(offset + 1)
	}
}

// markDelete returns the position up to which everything is acknowledged.
func (s *subscription) markDelete() *wire.MessageID {
	id := &wire.MessageID{Partition: -1, BatchIndex: -1}
	switch log := s.topic.log; {
	case s.cursor.mark > 0 && s.cursor.mark <= len(log):
		e := log[s.cursor.mark-1]
		id.Ledger, id.Entry = e.ledger, e.id
	case len(log) > 0:
		id.Ledger, id.Entry = log[0].ledger, wire.Absent
	default:
		id.Ledger, id.Entry = s.topic.ledger, wire.Absent
	}
	return id
}
