package partition

import "time"

// Info describes a message. Of a message that is not in the table only State is known: Settled or Unseen.
type Info struct {
	Delivery
	State   State
	Busy    bool          // a call acknowledges or publishes it
	Current bool          // the application has the message from the hand-over that Find was asked about
	Stale   bool          // another consumer may have it
	At      time.Duration // when its ack timeout or its delay is over; 0 if neither runs
	Begun   bool          // other messages of its batch are settled, and come again after a restart
}

// Find describes a message. isOpen is false if the message is settled or not known.
func (g *Group) Find(id ID, hand uint64) (i Info, isOpen bool, err error) {
	m, err := g.find(id)
	if m == nil {
		if p, _ := g.partitionOf(id); p != nil && p.settled.has(id.position(), id.Index) {
			i.State = Settled
		}
		return i, false, err
	}
	i.State = m.state
	if !m.isOpen() {
		return i, false, nil
	}
	i.Delivery, i.Stale = g.delivery(m), m.isStale()
	i.Busy, i.Current = m.busy > 0, m.isWith(hand)
	i.Begun = m.entry.ack.settled > 0 && g.o.IndexAcks != KeptIndexAcks
	if m.timer.IsSet() && (m.state == Held || m.state == Waiting) {
		i.At = m.timer.At()
	}
	return i, true, nil
}

// HeldOf returns the messages of an entry that the application has.
func (g *Group) HeldOf(id ID) (held []ID, err error) {
	p, err := g.partitionOf(id)
	if p == nil || p.entries[id.position()] == nil {
		return nil, err
	}
	for m := range p.entries[id.position()].all {
		if m.state == Held {
			held = append(held, ID{p.topic, id.Ledger, id.Entry, m.index})
		}
	}
	return held, nil
}

// Stats counts messages by state, and bytes.
type Stats struct {
	Held, Waiting, Ready, Asked int
	Bytes                       int64
}

// Stats returns the current counts.
func (g *Group) Stats() Stats {
	s := Stats{Bytes: g.memory}
	for _, p := range g.partitions {
		s.Held += p.in[Held]
		s.Waiting += p.in[Waiting]
		s.Ready += p.in[Ready]
		s.Asked += p.in[Asked]
	}
	return s
}

// Oldest returns how long the longest-waiting message has waited.
func (g *Group) Oldest(now time.Duration) (longest time.Duration) {
	for _, p := range g.partitions {
		for m := range p.messages {
			if m.state == Waiting || m.state == Ready || m.state == Asked {
				longest = max(longest, now-m.waitsSince)
			}
		}
	}
	return longest
}

// Unfinished counts the settled messages of batches that are not settled as a whole, and the messages of such batches
// that are about to arrive. The latter no longer count once the application has read for idleTime without getting one:
// the broker has left them out of their batch.
func (g *Group) Unfinished(now time.Duration) (settled, arriving int) {
	total := g.reading.at(now)
	for _, p := range g.partitions {
		settled += p.in[Settled]
		if e := p.current; e != nil && e.ack.settled > 0 && total-p.readingWhenCopyCame < idleTime {
			arriving += int(e.ack.total) - int(e.in[Settled]+e.unsettled())
		}
	}
	return settled, arriving
}

// Unacknowledged returns how many messages are unacknowledged at the broker, in the partition that has most. All
// messages of an unfinished batch count or, if the broker keeps acknowledgements of single messages, only the unsettled
// ones.
func (g *Group) Unacknowledged() (most int) {
	for _, p := range g.partitions {
		n := 0
		for _, e := range p.entries {
			n += int(e.ack.total)
			if g.o.IndexAcks == KeptIndexAcks {
				n -= int(e.ack.settled)
			}
		}
		most = max(most, n)
	}
	return most
}

// Len returns how many entries are in the table.
func (g *Group) Len() (n int) {
	for _, p := range g.partitions {
		n += len(p.entries)
	}
	return n
}
