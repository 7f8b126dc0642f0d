package pulsartest

import (
	"cmp"
	"slices"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// subscription is a cursor over a topic, with its consumers and the state of the entries that they get. Server.mu
// guards all of it.
type subscription struct {
	topic     *topic
	name      string
	durable   bool
	kind      wire.SubType
	used      bool // whether a consumer has set kind since the topic was loaded
	cursor    cursor
	consumers []*consumer     // by priority; within one, in the order of arrival, on Failover by name
	pending   map[int]pending // sent and not acknowledged, on Shared and Key_Shared
	replay    offsets         // entries to be sent again, before unread ones
	counts    map[int]uint32  // redelivery counts
	delayed   delayed
	unacked   int // messages sent and not acknowledged
	blocked   bool
	choice
	gone traffic // of consumers that were removed
}

// choice decides which consumer gets the next message.
type choice struct {
	turn     int                  // Shared: index of the consumer whose turn it is
	chunks   map[string]*consumer // Shared: by chunked message, the consumer that gets its chunks
	keys     keySelector          // Key_Shared
	active   *consumer            // Exclusive, Failover
	failover *timer               // runs until the active consumer may get messages
}

// traffic counts messages.
type traffic struct {
	sent        int // redeliveries included
	redelivered int
}

func (t *traffic) include(other traffic) {
	t.sent += other.sent
	t.redelivered += other.redelivered
}

// pending is an entry that a consumer has.
type pending struct {
	consumer *consumer
	messages int // unacknowledged messages of the entry
}

func newSubscription(t *topic, name string, durable bool, start int) *subscription {
	s := &subscription{topic: t, name: name, durable: durable, cursor: newCursor(start)}
	s.forget()
	return s
}

// forget drops the state that lives only while there are consumers.
func (s *subscription) forget() {
	s.pending = map[int]pending{}
	s.counts = map[int]uint32{}
	s.chunks = map[string]*consumer{}
	s.replay = nil
	s.stop()
	s.keys = keySelector{}
	s.active = nil
	s.unacked, s.blocked = 0, false
	s.cursor.read = s.cursor.mark
}

// title returns the subscription's type as the admin API names it.
func (s *subscription) title() string {
	if !s.used {
		return "None"
	}
	return s.kind.String()
}

// individual reports whether the broker assigns each entry to a consumer, as on Shared and Key_Shared.
func (s *subscription) individual() bool {
	return s.kind == wire.Shared || s.kind == wire.KeyShared
}

// add adds c, or returns an error if the other consumers exclude c. The caller calls added after success.
func (s *subscription) add(c *consumer, kind wire.SubType) error {
	if len(s.consumers) > 0 {
		if s.kind != kind {
			return failf(wire.ConsumerBusy, "Subscription is of different type")
		}
		if kind == wire.Exclusive {
			return failf(wire.ConsumerBusy, "Exclusive consumer is already connected")
		}
	}
	s.kind, s.used = kind, true
	if kind == wire.KeyShared {
		if err := s.keys.add(c); err != nil {
			return err
		}
	}
	c.sub = s
	s.consumers = append(s.consumers, c)
	slices.SortStableFunc(s.consumers, func(a, b *consumer) int { return cmp.Compare(a.priority, b.priority) })
	return nil
}

// added begins to serve a new consumer. The caller has sent the answer to SUBSCRIBE before.
func (s *subscription) added(c *consumer) {
	if !s.individual() && !s.elect() {
		s.notify(c)
	}
	s.dispatch()
}

// remove removes c. The other consumers get its unacknowledged messages, with the same counts. When the last consumer
// is removed, all counts are lost.
func (s *subscription) remove(c *consumer) {
	s.gone.include(c.traffic)
	i := slices.Index(s.consumers, c)
	s.consumers = slices.Delete(s.consumers, i, i+1)
	if len(s.consumers) == 0 {
		s.forget()
		if !s.durable {
			delete(s.topic.subs, s.name)
		}
		return
	}
	if !s.individual() {
		s.elect()
		return
	}
	var back []int
	for offset, p := range s.pending {
		if p.consumer == c {
			back = append(back, offset)
		}
	}
	for _, offset := range back {
		s.unpend(offset)
	}
	s.replay.addAll(back)
	s.keys.remove(c)
	s.dispatch()
}

// unpend takes an entry away from the consumer that has it.
func (s *subscription) unpend(offset int) {
	if p, ok := s.pending[offset]; ok {
		delete(s.pending, offset)
		p.consumer.add(-p.messages)
		s.keys.release(s.topic.log[offset].hash)
	}
}

// closeConsumers closes all consumers, except one if except is not nil. The clients of the closed consumers look the
// topic up again.
func (s *subscription) closeConsumers(except *consumer) {
	for _, c := range slices.Clone(s.consumers) {
		if c == except {
			continue
		}
		delete(c.session.consumers, c.id)
		c.session.send(&cmdCloseConsumer{Consumer: c.id, Request: noRequest}, nil)
		s.gone.include(c.traffic)
	}
	s.consumers = slices.DeleteFunc(s.consumers, func(c *consumer) bool { return c != except })
	if len(s.consumers) == 0 {
		s.forget()
	}
}

// reset moves the subscription to offset.
func (s *subscription) reset(offset int) {
	if c := s.active; c != nil && len(s.consumers) > 1 {
		// on Failover only the active consumer is closed; the next new consumer causes an election
		delete(c.session.consumers, c.id)
		c.session.send(&cmdCloseConsumer{Consumer: c.id, Request: noRequest}, nil)
		s.gone.include(c.traffic)
		s.consumers = slices.DeleteFunc(s.consumers, func(other *consumer) bool { return other == c })
		s.active = nil
		s.stop()
	} else {
		s.closeConsumers(nil)
	}
	s.cursor = newCursor(offset)
}

// redeliver sends entries again. On Shared and Key_Shared it sends those of c's entries that m names, or all of c's
// entries if m names none. The redelivery count of each grows by one. On other types, it sends everything that is not
// acknowledged, if c is active.
func (s *subscription) redeliver(c *consumer, m *cmdRedeliver) {
	if !s.individual() {
		if m.Epoch != wire.Absent {
			c.epoch = m.Epoch
		}
		if c == s.active {
			s.cursor.read = s.cursor.mark
			s.dispatch()
		}
		return
	}
	var back []int
	if len(m.IDs) == 0 {
		for offset, p := range s.pending {
			if p.consumer == c {
				back = append(back, offset)
			}
		}
	}
	for _, id := range m.IDs {
		offset, found := s.topic.find(id.Ledger, id.Entry)
		if found && s.pending[offset].consumer == c {
			back = append(back, offset)
		}
	}
	slices.Sort(back)
	back = slices.Compact(back)
	for _, offset := range back {
		s.unpend(offset)
		if !s.cursor.acked(offset) { // the admin API may have skipped the entry
			s.counts[offset]++
			s.replay.addAll([]int{offset})
		}
	}
	c.unblock()
	s.dispatch()
}

// stop stops the timers.
func (s *subscription) stop() {
	s.delayed.clear()
	s.failover.stop()
	s.failover = nil
}
