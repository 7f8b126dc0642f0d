package partition

import (
	"maps"
	"time"
)

// Partition is one topic, or one partition of a topic, as this consumer sees it.
type Partition struct {
	group   *Group
	topic   string
	source  any
	entries map[position]*entry
	in      [states]int // number of messages in each state
	settled settledIDs
	current *entry // the entry whose messages came last; more of them may follow

	request request // where the broker rewinds
	last    place   // of the copy that came last
	top     place   // of the furthest copy that ever came

	floor       uint64             // messages of an earlier epoch are stale
	activeEpoch uint64             // copies of an earlier epoch are dropped: this consumer was not active then
	readEpoch   uint64             // the epoch in which the broker sent the copies that are read now
	coming      map[place][]coming // copies that the broker sent and that are not read yet, oldest first; nil once calm
	lastSent    uint64             // number of the copy that the broker sent last
	lastRead    uint64             // largest number of a copy of coming that was read
	gap         gap                // where the broker rewinds

	sentEpoch           uint64        // the newest epoch in which the broker sent something
	sentAt              time.Duration // when the broker first sent something in sentEpoch
	calmEpoch           uint64        // the newest epoch in which the application took everything that was sent again
	readingWhenCopyCame time.Duration // reading.total when a copy came last
}

// topic returns the partition of a topic, or nil. Most calls ask for the same topic as the call before.
func (g *Group) topic(name string) *Partition {
	if g.latest == nil || g.latest.topic != name {
		g.latest = g.partitions[name]
	}
	return g.latest
}

// entryAt returns an entry of the table, or nil. Most calls ask for the entry whose messages came last.
func (p *Partition) entryAt(at position) *entry {
	if e := p.current; e != nil && e.at == at {
		return e
	}
	return p.entries[at]
}

// known returns the message at a place, or nil if it is not known.
func (p *Partition) known(at place) *message {
	if e := p.entryAt(at.position); e != nil {
		return e.known(at.index)
	}
	return nil
}

// partition returns the partition of a topic. It makes the partition if the topic is new.
func (g *Group) partition(topic string, source any) *Partition {
	p := g.topic(topic)
	if p == nil {
		p = &Partition{group: g, topic: topic, source: source, entries: map[position]*entry{}, readEpoch: firstEpoch,
			sentEpoch: firstEpoch, calmEpoch: firstEpoch}
		p.request.partition = p
		p.request.timer.Of.request, p.settled.timer.Of.settled = &p.request, p
		g.partitions[topic], g.latest = p, p
	}
	if source != nil {
		p.source = source
	}
	return p
}

// coming is a copy that the broker sent and that is not read yet.
type coming struct {
	object  any
	number  uint64        // copies are read in the order of their numbers
	at      time.Duration // when the broker sent it
	epoch   uint64        // in which the broker sent it
	isReset bool          // the broker surely had its acknowledgement: an operator has moved the cursor back
}

// messages ranges over the known messages.
func (p *Partition) messages(yield func(*message) bool) {
	for _, e := range p.entries {
		for m := range e.all {
			if !yield(m) {
				return
			}
		}
	}
}

// ledgers ranges over the ledgers of all known ids; it may yield a ledger more than once.
func (p *Partition) ledgers(yield func(int64) bool) {
	for at := range p.entries {
		if !yield(at.ledger) {
			return
		}
	}
	for at := range p.settled.parts {
		if !yield(at.ledger) {
			return
		}
	}
	for _, of := range p.settled.generations {
		for ledger := range of {
			if !yield(ledger) {
				return
			}
		}
	}
}

// Gone forgets a partition whose topic is no longer this consumer's.
func (g *Group) Gone(topic string) {
	p := g.topic(topic)
	if p == nil {
		return
	}
	g.latest = nil
	for m := range p.messages {
		g.stopRequest(m.entry)
		g.forgetMessage(m)
	}
	g.clock.Stop(&p.request.timer)
	g.clock.Stop(&p.settled.timer)
	delete(g.partitions, topic)
	maps.DeleteFunc(g.ledgers, func(_ int64, of *Partition) bool { return of == p })
}

// Leave forgets the partitions of a source whose topic is no longer this consumer's.
func (g *Group) Leave(source any) {
	for topic, p := range g.partitions {
		if p.source == source {
			g.Gone(topic)
		}
	}
}

// Forget forgets everything, for a Seek.
func (g *Group) Forget() {
	clear(g.ledgers)
	for topic := range g.partitions {
		g.Gone(topic)
	}
	g.ready, g.out = nil, Decisions{}
}
