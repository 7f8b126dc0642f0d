package ledger

import "github.com/apache/pulsar-client-go/pulsar"

// SettleTo settles all messages of a partition up to and including one, for a cumulative acknowledgement by id that succeeded. It
// returns an id if a newer delivery of that message is to be acknowledged as well, and what it settled where somebody observes.
func (l *Ledger) SettleTo(n Name, id pulsar.MessageID) (again pulsar.MessageID, settled []Settling) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.streamOf(n)
	if s == nil {
		return nil, nil
	}
	for l.offersUpTo(s, n) {
		l.withdraw()
	}
	if s.gone { // with all its messages, by a seek meanwhile
		return nil, nil
	}
	if ref, e, r := l.table.find(n); r != nil {
		whole := e.isBatch() && id.BatchIdx() < 0
		if next := toAck(e, l.table.newest(ref, r), l.ackedTo(e, ref.index())); next != id && !whole {
			again = next
		}
	}
	t, to, index := &l.table, entryOf(n.ID), indexOf(n.ID)
	for slot, e := range t.unsettled(s) {
		if key := t.entries.At(slot).Key; !to.before(key) {
			for i := range e.size() {
				if key == to && i > index {
					break
				}
				ref := refOf(slot, i)
				if _, r := t.at(ref); r != nil && r.state != acked {
					if l.o.Observed {
						settled = append(settled, Settling{})
						l.describe(ref, e, r, &settled[len(settled)-1])
					}
					l.outcome(false)
					l.settled(ref, e, r)
				}
			}
		} else if !s.list.unordered {
			break
		}
	}
	return again, settled
}

// offersUpTo reports whether a message that is on offer is one of those up to n. One after them is not withdrawn: it would be handed
// out after its successor, whose cumulative acknowledgement covers it. The caller holds mu.
func (l *Ledger) offersUpTo(s *stream, n Name) bool {
	if l.offer == nil {
		return false
	}
	ref, to := l.offer.d.Ref, entryOf(n.ID)
	e, r := l.table.at(ref)
	if r == nil || e.stream() != s {
		return false
	}
	key := l.table.entries.At(ref.slot()).Key
	return key.before(to) || key == to && ref.index() <= indexOf(n.ID)
}

// ackedTo returns how many messages of a batch are acknowledged when all up to index are. The caller holds mu.
func (l *Ledger) ackedTo(e *entry, index int32) int32 {
	n := e.batch.acked
	for i := range index + 1 {
		if r := e.seen(i); r != nil && r.state != acked {
			n++
		}
	}
	return n
}

// streamOf returns the partition that a message is of.
func (l *Ledger) streamOf(n Name) *stream {
	if _, e, r := l.table.find(n); r != nil {
		return e.stream()
	}
	if n.Topic != "" || l.table.shared {
		return l.table.streams[n.Topic]
	}
	if len(l.table.streams) == 1 {
		return l.table.latest
	}
	return l.table.ledgers[n.ID.LedgerID()]
}

// Newest returns what to acknowledge a message with, and at which consumer; nil if that is unknown.
func (l *Ledger) Newest(n Name) (pulsar.Consumer, pulsar.MessageID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ref, e, r := l.table.find(n); r != nil {
		return e.stream().consumer, l.table.newest(ref, r)
	}
	if s := l.streamOf(n); s != nil {
		return s.consumer, n.ID
	}
	return nil, n.ID
}
