package partition

import (
	"slices"
	"time"
)

// Lost notes that a connection may be lost. Upstream does not say which one. So, where there may be other consumers,
// the messages of all partitions are stale: a waiting one is requested when it is due, unless a newer copy comes
// first. Requests that were sent are not repeated: if the connection swallowed one, the broker sends everything again
// by itself.
func (g *Group) Lost(now time.Duration) {
	g.beginEpoch(now)
	if g.o.hasOthers() {
		g.floor = g.epoch
	}
}

func (g *Group) beginEpoch(now time.Duration) {
	g.epoch++
	g.lossAt = now
}

// Connected notes that all partitions have a connection. A copy that arrives in the new epoch does not prove that:
// upstream may read one late from the lost connection.
func (g *Group) Connected() { g.connected = g.epoch }

// GiveBack notes that the broker is about to send everything again, to any consumer. Messages that the application has
// are delivered again, unless a call settles them; their present delivery does not count.
func (g *Group) GiveBack(now time.Duration) {
	g.Lost(now)
	for _, p := range g.partitions {
		for m := range p.messages {
			if m.state == Held && m.busy == 0 && !m.undecided {
				m.uncounted = true
				g.wait(now, m, now)
			}
		}
	}
}

// Activate notes that this consumer of a Failover subscription became the active one of a topic, or, if active is
// false, that another consumer did.
func (g *Group) Activate(now time.Duration, topic string, source any, active bool) {
	p := g.partition(topic, source)
	g.beginEpoch(now)
	p.active, p.gap = g.epoch, gap{}
	if !active {
		p.floor = g.epoch
	}
}

// isInactive reports whether another consumer of a Failover subscription is the topic's active one.
func (p *Partition) isInactive() bool { return p.active > 0 && p.floor == p.active }

// isStale reports whether the newest delivery of a message may be another consumer's by now: it is of an earlier epoch
// than the partition's floor, and no newer copy of it is in upstream's queue.
func (m *message) isStale() bool {
	p := m.entry.partition
	return m.epoch < max(p.floor, p.group.floor) && !p.isComing(m.place())
}

// Sent notes that the broker sent a message. It is called before the message can be read: Arrive of this message
// follows later, and Arrive of earlier ones may still follow.
func (g *Group) Sent(now time.Duration, id ID, source, object any) {
	p := g.partition(id.Topic, source)
	if p.sent != g.epoch {
		p.sent, p.sentAt = g.epoch, now
		p.coming = map[place][]coming{}
		g.clock.Set(&p.settled.timer, now+g.o.AckedAfter)
	}
	if p.calm == g.epoch {
		return
	}
	p.sending++
	at := id.place()
	p.coming[at] = append(p.coming[at], coming{object, p.sending, now})
	if p.settled.isSure(id.position()) {
		p.resets.add(object, g.epoch)
	}
}

// isComing reports whether upstream's queue has a copy of a message, sent by the broker after the last loss. It is
// false where no other consumer can have the message. Upstream clears its queue when it is connected again, and does
// not report that. The clearing shows in two ways: a later copy was read, or the application waited for a while and got
// nothing.
func (p *Partition) isComing(at place) bool {
	copies := p.coming[at]
	return len(copies) > 0 && p.sent == p.group.epoch && p.group.o.hasOthers() && p.isQueued(copies[len(copies)-1])
}

func (p *Partition) isQueued(c coming) bool {
	return c.number > p.read && p.group.reading.idleAt < c.at+idleTime
}

// readCopy notes that a copy was read.
func (p *Partition) readCopy(now time.Duration, at place, object any) {
	copies := p.coming[at]
	i := slices.IndexFunc(copies, func(c coming) bool { return c.object == object })
	if i < 0 {
		return
	}
	passed := copies[i].number > p.read+1
	p.reads, p.read = p.sent, max(p.read, copies[i].number)
	if p.coming[at] = copies[i+1:]; i+1 == len(copies) {
		delete(p.coming, at)
	}
	if passed {
		p.requestDropped(now)
	}
}

// requestDropped requests the copies that are not in upstream's queue any more and were not read. Upstream drops
// messages that a new connection brings before upstream is ready for them. The broker does not send these again by
// itself. requestDropped reports whether it requested anything.
func (p *Partition) requestDropped(now time.Duration) (asked bool) {
	g := p.group
	missing := gap{requested: true}
	var object any
	for at, copies := range p.coming {
		c := copies[len(copies)-1]
		if g.o.rewinds() { // later messages come too soon, even if a newer copy is in the queue
			c = copies[0]
		}
		if p.isQueued(c) {
			continue
		}
		delete(p.coming, at)
		switch m := p.known(at); {
		case m != nil && m.isOpen() && m.state != Asked && !m.undecided:
			// it is here, or it is requested when it is due
		case g.o.rewinds():
			missing.widen(at)
			object = c.object
		case m != nil && m.state == Asked:
			g.send(now, g.requestOf(m.entry))
			asked = true
		default:
			p.sendAgain(c.object)
			asked = true
		}
	}
	if missing.open {
		p.gap = missing
		p.sendAgain(object)
		asked = true
	}
	return asked
}

// dropOld drops a copy that was sent before a loss, or before this consumer became active. The broker usually sends the
// copy again, after older messages. It does not send the copy again if it began to send before the listener reported
// this consumer active. So the message is awaited, and requested if it does not come.
func (g *Group) dropOld(now time.Duration, m *message, c *Copy) {
	switch p := m.entry.partition; {
	case m.state == Unseen && p.isInactive(): // the active consumer gets it
		g.forget(now, m)
	case m.state == Unseen:
		m.id, m.count = c.Object, c.count(0)
		g.expect(now, m)
	case m.undecided && !p.isComing(m.place()): // perhaps the transaction was aborted
		p.sendAgain(c.Object)
	}
}

// gap is where copies are missing. Copies after the gap come too soon, and are dropped until the broker rewinds.
type gap struct {
	open      bool
	requested bool  // the broker is going to rewind
	first     place // of the first missing copy
	last      place // of the last dropped copy
}

// widen notes that a copy is missing.
func (x *gap) widen(at place) {
	if !x.open || at.before(x.first) {
		x.open, x.first = true, at
	}
}

// drops reports whether a copy has to be dropped, and notes the gap that it leaves.
func (p *Partition) drops(at place, object any) bool {
	if p.reads < p.active { // perhaps the broker does not send it again by itself
		p.gap.widen(at)
		p.gap.last = at
		return true
	}
	return p.isComing(at) || p.isAfterGap(at, object)
}

// isAfterGap reports whether a copy comes too soon. A copy that jumps back ends the gap: the broker has rewound.
func (p *Partition) isAfterGap(at place, object any) bool {
	x := &p.gap
	if !x.open {
		return false
	}
	if !x.first.before(at) || !x.last.before(at) {
		*x = gap{}
		return false
	}
	x.last = at
	if !x.requested {
		x.requested = true
		p.sendAgain(object)
	}
	return true
}

// afterReset forgets the sure ids if object, a message that is being read, marks an operator's reset: the broker sent
// it again, although it surely had the acknowledgement of the message. Ids that are not sure stay: their messages may
// have been acknowledged after the reset.
func (p *Partition) afterReset(object any) {
	if p.resets.reached(object) {
		p.resets = marks{}
		p.settled.forgetSure()
	}
}
