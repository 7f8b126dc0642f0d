package pulsartest

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// elect chooses the active consumer of an Exclusive or Failover subscription, and reports whether the active consumer
// has changed. A new active consumer starts at the first entry that is not acknowledged. On Failover it starts after a
// delay, during which the last acknowledgements of the previous consumer arrive.
func (s *subscription) elect() bool {
	if s.kind == wire.Failover {
		slices.SortStableFunc(s.consumers, func(a, b *consumer) int {
			return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.name, b.name))
		})
	}
	chosen := s.consumers[s.candidate()]
	if chosen == s.active {
		return false
	}
	s.active = chosen
	server := s.topic.server
	if s.kind == wire.Exclusive || server.failoverDelay <= 0 {
		s.serveActive()
		return true
	}
	if s.failover == nil {
		s.failover = server.after(server.failoverDelay, func() {
			s.failover = nil
			s.serveActive()
		})
	}
	return true
}

func (s *subscription) serveActive() {
	s.cursor.read = s.cursor.mark
	for _, c := range s.consumers {
		s.notify(c)
	}
	s.dispatch()
}

// notify reports to a Failover consumer whether it is the active one.
func (s *subscription) notify(c *consumer) {
	if s.kind == wire.Failover {
		c.session.send(&cmdActiveConsumerChange{Consumer: c.id, Active: c == s.active}, nil)
	}
}

// candidate returns the index of the consumer that should be active, among the consumers of the best priority. The
// number of the partition decides. On a topic that is not a partition, a hash ring decides.
func (s *subscription) candidate() int {
	n := len(s.consumers)
	for i, c := range s.consumers {
		if c.priority != s.consumers[0].priority {
			n = i
			break
		}
	}
	if p := s.topic.name.partition; p >= 0 {
		return int(p) % n
	}
	at := keyHash([]byte(s.topic.name.String()))
	best, bestHash := -1, uint32(math.MaxUint32)
	first, firstHash := 0, uint32(math.MaxUint32)
	for i, c := range s.consumers[:n] {
		for j := range 100 {
			h := keyHash([]byte(c.name + strconv.Itoa(j)))
			if h >= at && h <= bestHash {
				best, bestHash = i, h
			}
			if h <= firstHash {
				first, firstHash = i, h
			}
		}
	}
	if best < 0 {
		return first
	}
	return best
}
