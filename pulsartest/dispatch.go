package pulsartest

import (
	"slices"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

const (
	readBatch  = 100  // entries that a dispatcher reads at a time
	roundRobin = 20   // largest number of entries for a consumer of a Shared subscription in one turn
	lookAhead  = 2000 // entries that Key_Shared may step over in one pass because no consumer can take them now
)

// dispatch sends all entries that can be sent. It is called after every change that may allow more to be sent.
func (s *subscription) dispatch() {
	if s.topic.server.faults.isPaused(s.topic.name) {
		return
	}
	switch s.kind {
	case wire.Shared:
		s.dispatchShared()
	case wire.KeyShared:
		s.dispatchKeyShared()
	default:
		s.dispatchActive()
	}
	if s.topic.terminated && s.cursor.backlog(len(s.topic.log)) == 0 {
		for _, c := range s.consumers {
			if !c.ended {
				c.ended = true
				c.session.send(&cmdReachedEndOfTopic{Consumer: c.id}, nil)
			}
		}
	}
}

// dispatchActive sends the active consumer as many entries as it has permits. A batch takes several permits, so the
// permits may fall below 0.
func (s *subscription) dispatchActive() {
	for s.anyAvailable() {
		offsets := s.read(min(s.active.permits, readBatch))
		if len(offsets) == 0 {
			return
		}
		for _, offset := range offsets {
			s.deliver(s.active, offset)
		}
	}
}

// dispatchShared reads as many entries as there are permits and hands them out, some to each consumer in turn.
func (s *subscription) dispatchShared() {
	for s.anyAvailable() {
		permits := 0
		for _, c := range s.consumers {
			permits += c.permits
		}
		// Permits below 0 lower the sum, but not the share of an available consumer.
		if i := slices.IndexFunc(s.consumers, (*consumer).available); i >= 0 {
			permits = max(permits, s.consumers[i].permits)
		}
		offsets := s.read(min(max(permits, 1), readBatch))
		if len(offsets) == 0 || !s.handOut(offsets) {
			return
		}
	}
}

// handOut gives entries to the consumers in turn. share decides how many each consumer gets. An entry that no consumer
// can take is replayed later. handOut reports whether it gave out any entry.
func (s *subscription) handOut(offsets []int) bool {
	all := len(offsets)
	var stuck []int
	messages, chunks := 0, false
	for _, offset := range offsets {
		messages += s.topic.log[offset].messages
		chunks = chunks || s.topic.log[offset].uuid != ""
	}
	mean := max(messages/len(offsets), 1)
	for len(offsets) > 0 && s.anyAvailable() {
		c, n := (*consumer)(nil), 1
		if chunks {
			c = s.choose(s.topic.log[offsets[0]])
			if c == nil {
				stuck = append(stuck, offsets[0])
				offsets = offsets[1:]
				continue
			}
		} else {
			c = s.nextInTurn()
			n = min(c.share(messages, mean), len(offsets))
		}
		for _, offset := range offsets[:n] {
			if e := s.topic.log[offset]; !s.delay(offset, e) {
				s.deliver(c, offset)
				messages -= e.messages
			}
		}
		offsets = offsets[n:]
	}
	s.replay.addAll(append(stuck, offsets...))
	return len(stuck)+len(offsets) < all
}

// share returns how many of the next entries c gets, at least one. mean is the mean number of messages in an entry.
func (c *consumer) share(messages, mean int) int {
	n := min(messages, c.permits)
	if limit, _ := c.sub.topic.unackedLimits(); limit > 0 {
		n = min(n, max(limit-c.unacked, 0))
	}
	return max(min(roundRobin, (n+mean-1)/mean), 1)
}

// dispatchKeyShared sends each entry to the consumer of its key, and steps over entries that cannot be sent now.
func (s *subscription) dispatchKeyShared() {
	var skipped []int
	s.keys.begin()
	for s.anyAvailable() && len(skipped) < lookAhead {
		free := map[*consumer]int{} // how many of the entries read below a consumer may get, whatever their size
		all := 0
		for _, c := range s.consumers {
			if c.available() {
				free[c] = c.permits
				all += c.permits
			}
		}
		offsets := s.read(min(all, readBatch))
		if len(offsets) == 0 {
			break
		}
		for _, offset := range offsets {
			e := s.topic.log[offset]
			if s.delay(offset, e) {
				continue
			}
			if c := s.keys.choose(e.hash, free); c != nil {
				free[c]--
				s.deliver(c, offset)
			} else {
				skipped = append(skipped, offset)
			}
		}
	}
	s.replay.addAll(skipped)
}

// anyAvailable reports whether the broker may send messages to any of the consumers.
func (s *subscription) anyAvailable() bool {
	if !s.individual() {
		return s.active != nil && s.active.available() && s.failover == nil
	}
	for _, c := range s.consumers {
		if c.available() {
			return true
		}
	}
	return false
}

// read takes at most n entries. On Shared and Key_Shared it first takes entries to be sent again and delayed entries
// that are due. If there are none, and the subscription is not blocked, it takes unread entries.
func (s *subscription) read(n int) (offsets []int) {
	if s.individual() {
		s.takeDue()
		for len(offsets) < n {
			offset, ok := s.replay.pop()
			if !ok {
				break
			}
			if !s.cursor.acked(offset) {
				offsets = append(offsets, offset)
			}
		}
		if len(offsets) > 0 || s.blocked {
			return offsets
		}
	}
	for s.cursor.read < len(s.topic.log) && len(offsets) < n {
		if !s.cursor.acked(s.cursor.read) {
			offsets = append(offsets, s.cursor.read)
		}
		s.cursor.read++
	}
	return offsets
}

// choose returns the consumer for e, or nil if that consumer cannot take e now.
func (s *subscription) choose(e *entry) *consumer {
	switch s.kind {
	case wire.KeyShared:
		return s.keys.choose(e.hash, nil)
	case wire.Shared:
		if e.uuid == "" {
			return s.nextInTurn()
		}
		if c := s.chunks[e.uuid]; c != nil && c.sub == s && !c.session.gone && slices.Contains(s.consumers, c) {
			if !c.available() {
				return nil
			}
			return c
		}
		c := s.nextInTurn()
		s.chunks[e.uuid] = c // chunks of one message go to one consumer
		return c
	default:
		return s.active
	}
}

// nextInTurn returns the next available consumer of a Shared subscription. It first tries the consumers whose priority
// is better than the priority of the consumer whose turn it is, then those with the same priority, then the others.
// Consumers are sorted by priority.
func (s *subscription) nextInTurn() *consumer {
	if s.turn >= len(s.consumers) {
		s.turn = 0
	}
	level := s.consumers[s.turn].priority
	first := slices.IndexFunc(s.consumers, func(c *consumer) bool { return c.priority == level })
	end := first
	for end < len(s.consumers) && s.consumers[end].priority == level {
		end++
	}
	for _, part := range [][2]int{{0, first}, {s.turn, end}, {first, s.turn}, {end, len(s.consumers)}} {
		for i := part[0]; i < part[1]; i++ {
			if s.consumers[i].available() {
				s.turn = i + 1
				return s.consumers[i]
			}
		}
	}
	return nil
}

// deliver sends the unacknowledged messages of an entry to c.
func (s *subscription) deliver(c *consumer, offset int) {
	e := s.topic.log[offset]
	n, set := s.cursor.remaining(offset, e.messages)
	count := uint32(0)
	if s.individual() {
		count = s.counts[offset]
		s.pending[offset] = pending{c, n}
		c.add(n)
		s.keys.hold(e.hash, c)
	}
	s.transmit(c, e, n, count, set)
}

func (s *subscription) transmit(c *consumer, e *entry, messages int, count uint32, set []int64) {
	c.permits -= messages
	c.sent += e.messages
	if count > 0 {
		c.redelivered += messages
	}
	m := &cmdMessage{Consumer: c.id, RedeliveryCount: count, AckSet: set, Epoch: wire.Absent,
		ID: wire.MessageID{Ledger: e.ledger, Entry: e.id, Partition: s.topic.name.partition, BatchIndex: -1}}
	if !s.individual() {
		m.Epoch = c.epoch
	}
	c.session.send(m, e.data)
}

// pass sends an entry of a non-persistent topic. If no consumer can take the entry, it is lost.
func (s *subscription) pass(e *entry) {
	if s.topic.server.faults.isPaused(s.topic.name) || !s.anyAvailable() {
		return
	}
	s.keys.begin()
	if c := s.choose(e); c != nil {
		s.transmit(c, e, e.messages, 0, nil)
	}
}
