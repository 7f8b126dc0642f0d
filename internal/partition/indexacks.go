package partition

import "time"

// IndexAcks says whether the acknowledgement of one message of a batch is sent, and whether the broker keeps it.
type IndexAcks uint8

const (
	NoIndexAcks      IndexAcks = iota // the client does not send it before the whole batch is acknowledged
	SentIndexAcks                     // the client sends it; whether the broker keeps it is unknown
	IgnoredIndexAcks                  // the client sends it, and the broker does not keep it
	KeptIndexAcks                     // the client sends it, and the broker leaves the message out of its batch
)

// IndexAcks returns the present value. Copies may change it: see learnIndexAcks.
func (g *Group) IndexAcks() IndexAcks { return g.o.IndexAcks }

// MayLeaveOut reports whether the broker may have sent a batch without its acknowledged messages.
func (g *Group) MayLeaveOut(now time.Duration) bool {
	if g.o.IndexAcks == SentIndexAcks {
		settled, _ := g.Unfinished(now)
		return settled > 0
	}
	return g.o.IndexAcks == KeptIndexAcks
}

// learnIndexAcks finds out from a copy whether the broker keeps batch-index acknowledgements: the protocol does not say. The
// broker surely has an acknowledgement that is old enough and was not sent shortly before a loss.
func (g *Group) learnIndexAcks(now time.Duration, e *entry, m *message, epoch uint64) {
	a := &e.ack
	if g.o.IndexAcks == NoIndexAcks {
		return
	}
	// If the copy continues the delivery of the previous copy, or is the first copy of its entry, the broker has left
	// out the messages of the batch that were skipped. (After a Seek into the middle of a batch this is wrong. A settled
	// message that comes again corrects it.)
	isFirst := !a.came && !a.repeated
	continues := a.came && m.index > a.last && a.epoch == epoch
	first := int32(0)
	if continues {
		first = a.last + 1
	}
	until := now
	if a.settledIn != g.epoch {
		until = g.lossAt
	}
	sure := a.settled > 0 && until-a.settledAt >= g.o.AckedAfter
	for index := first; index < m.index; index++ {
		switch x := e.known(index); {
		case x == nil && (continues || isFirst), x != nil && x.state == Settled && sure:
			g.o.IndexAcks = KeptIndexAcks
		}
	}
	if m.state == Settled && sure {
		g.o.IndexAcks = IgnoredIndexAcks
	}
}
