package pulsartest

import (
	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// lookAhead is how many entries one pass may step over because nobody can take
// them now.
const lookAhead = 2000

// dispatch sends what can be sent. It is called after every change that may
// let something through.
func (s *subscription) dispatch() {
	if s.topic.server.faults.holds(s.topic.name) || s.blocked || !s.anyAvailable() {
		return
	}
	var skipped []int
	s.keys.begin()
	for s.anyAvailable() && !s.blocked && len(skipped) < lookAhead {
		offset, ok := s.next()
		if !ok {
			break
		}
		e := s.topic.log[offset]
		if s.individual() && s.delay(offset, e) {
			continue
		}
		if c := s.choose(e); c != nil {
			s.deliver(c, offset, e)
		} else {
			skipped = append(skipped, offset)
		}
	}
	s.replay.addAll(skipped)
	if s.topic.terminated && s.cursor.backlog(len(s.topic.log)) == 0 {
		for _, c := range s.consumers {
			if !c.ended {
				c.ended = true
				c.session.send(&wire.ReachedEndOfTopic{Consumer: c.id}, nil)
			}
		}
	}
}

// anyAvailable reports whether some consumer may be sent something.
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

// next takes the entry whose turn it is: first what is to be sent again, then
// what is due by now, then what was not read before.
func (s *subscription) next() (int, bool) {
	if s.individual() {
		if len(s.replay) == 0 {
			s.takeDue()
		}
		if offset, ok := s.replay.pop(); ok {
			return offset, true
		}
	}
	for s.cursor.read < len(s.topic.log) {
		offset := s.cursor.read
		s.cursor.read++
		if !s.cursor.acked(offset) {
			return offset, true
		}
	}
	return 0, false
}

// choose returns the consumer for e, or nil when it cannot take it now.
func (s *subscription) choose(e *entry) *consumer {
	switch s.kind {
	case wire.KeyShared:
		return s.keys.choose(e.hash)
	case wire.Shared:
		if e.uuid == "" {
			return s.nextInTurn()
		}
		if c := s.chunks[e.uuid]; c != nil && c.sub == s && !c.session.gone && s.has(c) {
			if !c.available() {
				return nil
			}
			return c
		}
		c := s.nextInTurn()
		s.chunks[e.uuid] = c // chunks of one message go to one consumer
		return c
	}
	return s.active
}

func (s *subscription) has(c *consumer) bool {
	for _, k := range s.consumers {
		if k == c {
			return true
		}
	}
	return false
}

// nextInTurn goes round the consumers of the best priority that has a free one.
func (s *subscription) nextInTurn() *consumer {
	var best *consumer
	at := 0
	for i := range s.consumers {
		j := (s.turn + i) % len(s.consumers)
		if c := s.consumers[j]; c.available() && (best == nil || c.priority < best.priority) {
			best, at = c, j
		}
	}
	s.turn = at + 1
	return best
}

// deliver sends what is left of e to c.
func (s *subscription) deliver(c *consumer, offset int, e *entry) {
	n, set := s.cursor.left(offset, e.messages)
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
	c.out += messages
	if count > 0 {
		c.again += messages
	}
	m := &wire.Message{Consumer: c.id, RedeliveryCount: count, AckSet: set, Epoch: wire.Absent,
		ID: wire.MessageID{Ledger: e.ledger, Entry: e.id, Partition: s.topic.name.partition, BatchIndex: -1}}
	if !s.individual() {
		m.Epoch = c.epoch
	}
	c.session.send(m, e.data)
}

// pass sends an entry of a non-persistent topic, which is lost when nobody can
// take it.
func (s *subscription) pass(e *entry) {
	if s.topic.server.faults.holds(s.topic.name) || !s.anyAvailable() {
		return
	}
	s.keys.begin()
	if c := s.choose(e); c != nil {
		s.transmit(c, e, e.messages, 0, nil)
	}
}
