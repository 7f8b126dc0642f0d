package ledger

import "github.com/apache/pulsar-client-go/pulsar"

// isNoted reports whether upstream would only note that a message is acknowledged, until the last one of its batch is. Upstream is not told
// then, but acknowledges the whole batch in the end; unless the batch did not come from its first message on, which only upstream counts as
// acknowledged. The caller holds mu.
func (l *Ledger) isNoted(e *entry, r *record, s *Settling) bool {
	return l.o.WholeBatches && e.isBatch() && e.batch.settledForUpstream()+1 < e.batch.total && r.state == inFlight &&
		!r.flags.has(busy|doubtful|timed) && e.batch.records[0].state != unseen && !s.Leaves && !s.Undecided
}

// toAck returns what to acknowledge a delivery with: its id or, of a batch that is settled then, the whole entry. The broker may wait for
// just that, if the batch came more than once and its messages were acknowledged by different deliveries, or if it refused one of
// them.
func toAck(e *entry, id pulsar.MessageID, acked int32) pulsar.MessageID {
	if !e.flags.has(ackWhole) || e.batch.total == 0 || acked < e.batch.total {
		return id
	}
	return wholeOf(id)
}

// wholeOf returns what to acknowledge an entry with of which everything is settled.
func wholeOf(id pulsar.MessageID) pulsar.MessageID {
	if id.BatchSize() <= 1 {
		return id
	}
	return pulsar.NewMessageID(id.LedgerID(), id.EntryID(), -1, id.PartitionIdx())
}
