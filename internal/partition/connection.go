package partition

import (
	"slices"
	"time"
)

// Lost notes that a connection may be lost. Upstream does not say which one. So, if there may be other consumers, the
// messages of all partitions are stale: a waiting one is requested when it is due, unless a newer copy comes first (see
// makeReady and Take). Lost repeats no request: if one was lost with the connection, the broker sends everything again
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
// upstream may read a copy late from the lost connection.
func (g *Group) Connected() { g.connectedEpoch = g.epoch }

// GiveBack notes that the broker is about to send everything again, to any consumer. Messages that the application has
// are handed out again, unless a call settles them; their present hand-over does not count.
func (g *Group) GiveBack(now time.Duration) {
	g.Lost(now)
	for _, p := range g.partitions {
		clear(p.coming)
		for m := range p.messages {
			if m.state == Held && m.busy == 0 && !m.undecided {
				m.uncounted = true
				g.waitUntil(now, m, now)
			}
		}
	}
}

// Activate notes that this consumer of a Failover subscription became the active one of a topic, or, if active is
// false, that another consumer did.
func (g *Group) Activate(now time.Duration, topic string, source any, active bool) {
	p := g.partition(topic, source)
	g.beginEpoch(now)
	p.activeEpoch, p.gap = g.epoch, gap{}
	if !active {
		p.floor = g.epoch
	}
}

// isInactive reports whether another consumer of a Failover subscription is the topic's active one.
func (p *Partition) isInactive() bool { return p.activeEpoch > 0 && p.floor == p.activeEpoch }

// isStale reports whether another consumer may have a message by now: the newest delivery is of an epoch before the
// floor of the partition or of the Group, and upstream's queue has no newer copy.
func (m *message) isStale() bool {
	p := m.entry.partition
	return m.epoch < max(p.floor, p.group.floor) && !p.isComing(m.place())
}

// Sent notes that the broker sent a message. From the first call of Lost, GiveBack or Activate on, call it for each
// message, before the message can be read: Arrive of this message follows later, and Arrive of earlier ones may still
// follow.
func (g *Group) Sent(now time.Duration, id ID, source, object any) {
	p := g.partition(id.Topic, source)
	if p.sentEpoch != g.epoch {
		p.sentEpoch, p.sentAt = g.epoch, now
		if p.coming == nil || len(p.coming) > maxComing {
			p.coming = map[place][]coming{}
		}
		g.clock.Set(&p.settled.timer, now+g.o.AckedAfter)
	}
	if p.calmEpoch == g.epoch {
		return
	}
	p.lastSent++
	at := id.place()
	p.coming[at] = append(p.coming[at], coming{object, p.lastSent, now, g.epoch, p.settled.isSure(at.position)})
}

// anyEpoch stands for all epochs.
const anyEpoch = 0

// maxComing bounds Partition.coming, in case connections are lost again and again while the application reads nothing.
const maxComing = 10_000

// isComing reports whether upstream's queue has a copy of a message that the broker sent after the last loss. If no
// other consumer can have the message, isComing returns false. Upstream clears its queue when it is connected again,
// and does not report that. Two things show that a copy was cleared: a later copy was read, or the application waited
// for a while and got nothing.
func (p *Partition) isComing(at place) bool {
	copies := p.coming[at]
	if len(copies) == 0 || !p.group.o.hasOthers() {
		return false
	}
	last := copies[len(copies)-1]
	return last.epoch == p.group.epoch && p.isQueued(last)
}

// isQueued reports whether a copy may still be in upstream's queue.
func (p *Partition) isQueued(c coming) bool {
	return c.number > p.lastRead && p.group.reading.idleAt < c.at+idleTime
}

// readCopy notes that a copy was read. If the copy marks an operator's reset, the sure ids are forgotten: all copies
// that the broker sent before the reset have been read. Ids that are not sure stay: their messages may have been
// acknowledged after the reset.
func (p *Partition) readCopy(now time.Duration, at place, object any) {
	copies := p.coming[at]
	i := slices.IndexFunc(copies, func(c coming) bool { return c.object == object })
	if i < 0 {
		return
	}
	c := copies[i]
	passed := c.number > p.lastRead+1
	p.readEpoch, p.lastRead = c.epoch, max(p.lastRead, c.number)
	p.coming[at] = copies[i+1:]
	if i+1 == len(copies) {
		delete(p.coming, at)
	}
	if c.isReset {
		p.settled.forgetSure()
	}
	if passed {
		p.requestDropped(now, c.epoch)
	}
}

// requestDropped requests the messages whose newest copies the broker sent in an epoch, or in anyEpoch, if the copies
// were not read and are no longer in upstream's queue. Upstream drops messages that a new connection brings before
// upstream is ready for them, and the broker does not send these again by itself. Older copies of a message were cleared
// when a connection was lost. requestDropped reports whether it requested anything.
func (p *Partition) requestDropped(now time.Duration, epoch uint64) (asked bool) {
	g := p.group
	var object any // of a missing copy, where the broker rewinds
	for at, copies := range p.coming {
		c := copies[len(copies)-1]
		if c.epoch != epoch && epoch != anyEpoch {
			continue
		}
		copies = slices.DeleteFunc(copies, func(older coming) bool { return older.epoch < c.epoch && !p.isQueued(older) })
		p.coming[at] = copies
		if g.o.rewinds() { // even if a newer copy is in the queue, later messages come too soon
			c = copies[0]
		}
		if p.isQueued(c) {
			continue
		}
		delete(p.coming, at)
		switch m := p.known(at); {
		case c.epoch < g.epoch && p.isInactive(): // the active consumer gets it
		case m != nil && m.isOpen() && m.state != Asked && !m.undecided:
			// the Group has the message, or requests it when it is due
		case g.o.rewinds():
			p.gap.widen(at)
			object = c.object
		case m != nil && m.state == Asked:
			m.id, m.entry.ack.repeated = c.object, true
			g.sendRequest(now, g.requestOf(m.entry))
			asked = true
		default:
			p.addRequest(c.object)
			asked = true
		}
	}
	if object != nil {
		p.gap.requested, p.gap.last = true, place{}
		p.addRequest(object)
		asked = true
	}
	return asked
}

// dropOld drops a copy for which Partition.drops returned true. The broker usually sends the message again, after older
// ones. It does not do so if it began to send before the listener reported that this consumer is active. So the message
// is awaited, and requested if it does not come.
func (g *Group) dropOld(now time.Duration, m *message, c *Copy) {
	switch p := m.entry.partition; {
	case m.state == Unseen && p.isInactive(): // the active consumer gets it
		g.forget(now, m)
	case m.state == Unseen:
		m.id, m.count = c.Object, c.count(0)
		g.expect(now, m)
	case m.undecided && !p.isComing(m.place()): // the transaction may have been aborted
		p.addRequest(c.Object)
	}
}

// gap is the range of copies that are missing. Copies after the gap come too soon, and are dropped until the broker
// rewinds.
type gap struct {
	open      bool
	requested bool  // the broker was asked to rewind
	first     place // of the first missing copy
	last      place // of the last dropped copy
}

// widen extends the gap to a copy that is missing.
func (x *gap) widen(at place) {
	if !x.open || at.before(x.first) {
		x.open, x.first = true, at
	}
}

// drops reports whether a copy of an epoch has to be dropped, and notes the gap that it leaves.
func (p *Partition) drops(at place, object any, epoch uint64) bool {
	if epoch < p.activeEpoch || p.isInactive() { // perhaps the broker does not send it again by itself
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
		p.addRequest(object)
	}
	return true
}
