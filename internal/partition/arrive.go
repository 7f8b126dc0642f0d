package partition

import "time"

// Copy is one delivery of a message by the broker.
type Copy struct {
	ID     ID
	Source any    // the consumer of its partition, which acknowledges and requests it
	Object any    // its id as upstream knows it
	Body   any    // the message
	Total  int32  // messages of the entry; 0 or 1 for a single one
	Count  uint32 // how often it was delivered before, according to the broker
	Tries  uint32 // how often it was delivered before, according to a log of attempts; 0 if the log does not know it
	// of a retry: number of deliveries of the message's earlier publications, without those that Count includes
	Earlier uint32
	// how long the message must not be handed out; ignored after its first delivery, unless Tries shows another failure
	Wait   time.Duration
	Size   int64 // bytes that the message takes by itself
	Buffer int64 // bytes of the buffer that it shares with others of its batch
	// Sent was not called for the copy, since upstream could not decrypt it. The copy counts as sent in the present
	// epoch; after a loss the message may be another consumer's.
	Unannounced bool
}

// Verdict says what the caller does with a copy.
type Verdict uint8

const (
	Deliver  Verdict = iota // the message goes to the application
	AckAgain                // the message is settled: acknowledge it again
	Buffered                // the Group has the message and keeps the body: nothing to do
	// the copy is not used, and the message comes again: there is no room for the body, or the copy is older than a
	// loss or the activation of this consumer, or follows a gap
	Dropped
)

// Arrive takes a copy that the caller has read from upstream. After Deliver, d describes the hand-over. After AckAgain,
// again describes the acknowledgement to repeat.
func (g *Group) Arrive(now time.Duration, c *Copy, d *Delivery) (verdict Verdict, again Again) {
	p := g.partition(c.ID.Topic, c.Source)
	at := c.ID.place()
	g.took(now, p)
	p.readCopy(now, at, c.Object)
	if previous := p.current; previous != nil && previous.at != at.position {
		p.current = nil
		g.finishEntry(now, previous)
	}
	e := p.entryAt(at.position)
	if p.isComplete(e, at.position) {
		if e == nil { // else finishEntry notes it
			p.settled.remove(at.position)
			g.noteSettled(now, p, at.position)
		}
		verdict, again = AckAgain, Again{p.source, p.topic, c.Object, c.Total > 1}
	} else {
		e = g.entry(p, e, at.position, c.Total)
		p.current = e
		m := e.message(at.index)
		if g.o.Deaf {
			g.hearCopy(now, m)
		}
		epoch := p.readEpoch
		if c.Unannounced {
			epoch = g.epoch
		}
		if p.drops(at, c.Object, epoch) {
			e.ack.repeated = true
			g.dropOld(now, m, c)
			return Dropped, again
		}
		g.learnIndexAcks(now, e, m, epoch)
		e.ack.copyCame(m.index, epoch)
		m.id, m.epoch = c.Object, epoch
		m.earlier = c.Earlier
		if verdict = g.arrive(now, m, c, d); verdict == AckAgain {
			again = m.again(m.id)
		}
	}
	if g.o.rewinds() {
		g.followAnswer(now, p, at) // last, since the copy may answer the request
	}
	return verdict, again
}

// isComplete reports whether all messages of an entry are settled. Such an entry is still in the table while another
// call settles one of its messages, too.
func (p *Partition) isComplete(e *entry, at position) bool {
	if e != nil {
		return e.ack.isComplete()
	}
	return p.settled.hasEntry(at)
}

// entry returns e, the entry of the table at a position. If e is nil, entry makes it.
func (g *Group) entry(p *Partition, e *entry, at position, total int32) *entry {
	if e == nil {
		e = g.newEntry(p, at, max(1, int(total)))
		p.entries[at] = e
		if of, known := g.ledgers[at.ledger]; !known {
			g.ledgers[at.ledger] = p
		} else if of != p {
			g.ledgers[at.ledger] = nil
		}
		for index, settled := int32(0), p.settled.takePart(at); index < int32(64*len(settled)); index++ {
			if settled.has(index) {
				e.message(index).move(Settled)
				e.ack.settled++
				e.ack.repeated = true
			}
		}
	}
	e.ack.total = max(1, total, e.ack.total)
	return e
}

// hearCopy infers connections from a copy, for a caller that does not call Lost (Options.Deaf). The copy shows that its
// partition is connected. If nothing requested the copy, and its message already came over the last known connection,
// there is a new connection.
func (g *Group) hearCopy(now time.Duration, m *message) {
	if m.isOpen() && m.state != Asked && m.epoch == g.epoch && !g.requestOf(m.entry).open {
		g.Lost(now)
	}
	m.entry.partition.sentEpoch, m.entry.partition.readEpoch = g.epoch, g.epoch
}

// arrive handles a copy of a message in each state.
func (g *Group) arrive(now time.Duration, m *message, c *Copy, d *Delivery) Verdict {
	switch m.state {
	case Unseen:
		m.count = c.count(0)
		g.keep(m, c)
		if c.Wait <= 0 {
			g.deliver(now, m, c.Body, d)
			return Deliver
		}
		g.waitUntil(now, m, add(now, c.Wait))
	case Asked:
		r := g.requestOf(m.entry)
		m.excess += r.excess(m.delivered && m.busy == 0)
		m.takeCount(c)
		g.keep(m, c)
		wait := c.Wait // of a retry that is not due, or of a message on which another consumer failed
		if m.delivered && c.Tries <= m.count+1 {
			wait = 0
		}
		if m.busy > 0 || wait > 0 {
			g.waitUntil(now, m, add(now, wait))
			r.messageCame()
			break
		}
		g.deliver(now, m, c.Body, d)
		r.messageCame()
		return Deliver
	case Held, Waiting, Ready:
		m.takeCount(c)
		g.keep(m, c)
		switch {
		case !m.undecided:
		case m.busy > 0 || now < m.due: // the transaction was aborted, and the delay goes on
			g.waitUntil(now, m, max(now, m.due))
		default:
			g.deliver(now, m, c.Body, d)
			return Deliver
		}
	case Settled:
		return AckAgain
	}
	if m.body == nil {
		return Dropped
	}
	return Buffered
}

// count returns how often a message was delivered before, according to its copy. It subtracts excess: the requests that
// the broker counted although no hand-over followed them. For a batch it prefers the log of attempts, since the broker
// counts the failures of the whole batch.
func (c *Copy) count(excess uint32) uint32 {
	if c.Tries > 0 && c.Total > 1 {
		return c.Tries
	}
	return max(c.Count-min(c.Count, excess), c.Tries)
}

// takeCount adopts a larger count of a copy: that of a log of attempts or, for an entry of one message, the broker's.
func (m *message) takeCount(c *Copy) {
	if !m.delivered {
		m.count = max(m.count, c.count(m.excess))
		return
	}
	m.brokerCount = max(m.brokerCount, c.Tries)
	if !m.entry.isBatch() {
		m.brokerCount = max(m.brokerCount, c.count(m.excess))
	}
}
