package ledger

// IndexAcks says what becomes of the acknowledgement of one message of a batch.
type IndexAcks uint8

const (
	NoIndexAcks      IndexAcks = iota // the client does not send it before the whole batch is acknowledged
	SentIndexAcks                     // the client sends it; whether the broker keeps it is unknown
	IgnoredIndexAcks                  // the client sends it, and the broker does not keep it
	KeptIndexAcks                     // the client sends it, and the broker keeps it
)

// observeIndexAcks learns from a delivery of a batch whether the broker keeps acknowledgements of single messages: one that does leaves these
// messages out of the batch. The protocol says nothing about it. The delivery is not noted in the entry yet. The caller holds mu.
func (l *Ledger) observeIndexAcks(ref Ref, e *entry) {
	b := e.batch
	isSure := b.acked == 0 || b.stream.isSure(b.settled) && b.stream.cover.id == nil // else upstream may leave them out, or they are on their way
	from, continues := int32(0), b.stream.current == ref.slot() && ref.index() > b.last
	switch {
	case e.at(ref.index()).state == acked:
		if isSure {
			l.indexAcks = IgnoredIndexAcks
		}
		return
	case continues:
		from = b.last + 1
	case b.seen == 0: // what is missing before the first message may be due to a seek
		return
	}
	for i := from; i < ref.index(); i++ {
		switch state := e.at(i).state; {
		case state == unseen && continues, state == acked && isSure:
			l.indexAcks = KeptIndexAcks
		}
	}
}
