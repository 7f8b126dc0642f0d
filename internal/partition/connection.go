package partition

import "time"

// Lost notes that a connection may be lost. Upstream does not say whose, so everything of all partitions is
// stale, if another consumer can have it: messages that wait are requested when they are due, unless a newer
// copy comes before. What was requested before is not requested again: if the connection swallowed that, the broker
// sends everything again by itself.
func (g *Group) Lost(now time.Duration) {
	g.epoch++
	if g.o.hasOthers() {
		g.floor = g.epoch
	}
	g.lossAt = now
}

// GiveBack notes that the broker is about to send everything again, to any consumer. Messages that the
// application has come back, and that delivery does not count.
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

// Activate notes that another consumer of a Failover subscription became active in this one's place, or this
// one in its place.
func (g *Group) Activate(now time.Duration, topic string, source any, active bool) {
	p := g.partition(topic, source)
	g.epoch++
	g.lossAt = now
	p.active = g.epoch
	if !active {
		p.floor = g.epoch
	}
}

// isFresh reports whether the newest delivery of a message is still this consumer's.
func (m *message) isFresh() bool {
	p := m.entry.partition
	return m.epoch >= max(p.floor, p.group.floor) || p.isComing(m.place())
}

// Sent notes that the broker sent a message, before Arrive is called for it and for whatever upstream received
// earlier.
func (g *Group) Sent(now time.Duration, id ID, object any) {
	p := g.partition(id.Topic, nil)
	if p.sent != g.epoch {
		p.sent, p.sentAt = g.epoch, now
		p.coming = map[place]coming{}
	}
	if p.calm == g.epoch {
		return
	}
	p.sending++
	p.coming[id.place()] = coming{object, p.sending, now}
	if p.settled.isSure(id.position()) {
		p.resets.add(object, g.epoch)
	}
}

// isComing reports whether a copy of a message is in upstream's queue that the broker sent after the last loss.
// Upstream clears its queue when it is connected again. So a copy is not in the queue any more if a later one was read,
// or if the application waited for a while and got nothing.
func (p *Partition) isComing(at place) bool {
	g, c := p.group, p.coming[at]
	return p.sent == g.epoch && g.o.hasOthers() && c.number > p.read && g.reading.idleAt < c.at+idleTime
}

// readCopy notes that a copy was read.
func (p *Partition) readCopy(at place, object any) {
	if c, known := p.coming[at]; known && c.object == object {
		p.reads, p.read = p.sent, c.number
		delete(p.coming, at)
	}
}

// dropOld drops a copy that was sent before a loss, or before this consumer became active. The broker sends it again,
// after older ones, unless it began to send before the listener's report. So the message is requested if it does not
// come.
func (g *Group) dropOld(now time.Duration, m *message, c Copy) {
	if m.state == Unseen {
		m.id, m.count = c.Object, c.count()
		g.expect(now, m)
	}
}

// afterReset forgets the sure ids once the application has read as far as an operator's reset: object is the
// first message that the broker sent again though it surely had its acknowledgement. Other settled messages may
// have been acknowledged since.
func (p *Partition) afterReset(object any) {
	if p.resets.reached(object) {
		p.resets = marks{}
		p.settled.forgetSure()
	}
}
