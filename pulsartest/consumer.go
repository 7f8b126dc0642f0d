package pulsartest

import (
	"fmt"
	"math"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

type consumer struct {
	session  *session
	sub      *subscription
	id       uint64
	name     string
	priority int32
	epoch    uint64
	keys     wire.KeySharedMeta
	meta     []wire.KeyValue
	permits  int // messages it may be sent; below 0 after a large batch
	later    int // permits that came while it was blocked
	unacked  int // messages, on Shared and Key_Shared
	blocked  bool
	ended    bool // it was told that the topic has ended
	out      int  // messages sent, counting each time
	again    int  // messages sent again
}

// available reports whether c may be sent something.
func (c *consumer) available() bool { return c.permits > 0 && !c.blocked && !c.session.gone }

// add changes the number of unacknowledged messages, and what follows of it.
func (c *consumer) add(unacked int) {
	limit, subLimit := c.sub.topic.unackedLimits()
	c.unacked += unacked
	c.sub.unacked += unacked
	if limit > 0 && c.unacked >= limit {
		c.blocked = true
	} else if limit <= 0 || c.unacked <= limit/2 {
		c.unblock()
	}
	if subLimit > 0 && c.sub.unacked >= subLimit {
		c.sub.blocked = true
	} else if subLimit <= 0 || c.sub.unacked < subLimit/2 {
		c.sub.blocked = false
	}
}

func (c *consumer) unblock() {
	c.blocked = false
	c.permits += c.later
	c.later = 0
}

// flow permits more messages.
func (c *consumer) flow(messages int) {
	if c.blocked {
		c.later = min(c.later+messages, math.MaxInt32)
		return
	}
	c.permits = min(c.permits+messages, math.MaxInt32)
}

func (c *session) subscribe(m *wire.Subscribe) {
	s := c.server
	if _, ok := c.consumers[m.Consumer]; ok { // the client asks again
		c.success(m.Request)
		return
	}
	if err := s.faults.subscribes.hit(m.Topic); err != nil {
		c.fail(m.Request, err)
		return
	}
	if m.ReadCompacted && m.SubType != wire.Exclusive && m.SubType != wire.Failover {
		c.fail(m.Request, failf(wire.NotAllowedError, "readCompacted only allowed on failover or exclusive subscriptions"))
		return
	}
	t, err := s.topic(m.Topic, m.ForceTopic)
	if err != nil {
		c.fail(m.Request, err)
		return
	}
	if err := t.admitSchema(m.Schema); err != nil {
		c.fail(m.Request, err)
		return
	}
	k := &consumer{session: c, id: m.Consumer, name: m.Name, priority: m.Priority, epoch: m.Epoch, meta: m.Metadata}
	if m.KeyShared != nil {
		k.keys = *m.KeyShared
	}
	if k.name == "" {
		k.name = fmt.Sprintf("%05x", s.nextName)
		s.nextName++
	}
	sub, known := t.subs[m.Subscription]
	switch {
	case !known && m.Durable:
		sub = t.subscription(m.Subscription, m.InitialPosition)
	case !known:
		sub = newSubscription(t, m.Subscription, false, t.start(m.Start, m.InitialPosition))
		t.subs[m.Subscription] = sub
	case sub.durable != m.Durable:
		c.fail(m.Request, failf(wire.NotAllowedError, "Durable subscription with the same name already exists."))
		return
	}
	if !known && m.RollbackSeconds > 0 {
		since := nowMillis() - int64(min(m.RollbackSeconds, math.MaxInt32))*1000
		sub.cursor = newCursor(t.findTime(uint64(max(since, 0))))
	}
	if err := sub.add(k, m.SubType); err != nil {
		if len(sub.consumers) == 0 && !sub.durable {
			delete(t.subs, sub.name)
		}
		c.fail(m.Request, err)
		return
	}
	c.consumers[k.id] = k
	c.log.Debug("pulsartest: consumer", "topic", t.name.String(), "subscription", sub.name, "consumer", k.name)
	c.success(m.Request)
	sub.added(k)
}

// start is where a reader starts: at the entry that id names, of which its
// client skips what it has read. Past the end the initial position counts.
func (t *topic) start(id *wire.MessageID, position wire.InitialPosition) int {
	i := len(t.log)
	if id != nil && id.Ledger != math.MaxUint64 { // that is the earliest
		i, _ = t.find(id.Ledger, id.Entry)
		if id.Entry == math.MaxUint64 {
			i, _ = t.find(id.Ledger, 0)
		}
	}
	if id != nil && id.Ledger == math.MaxUint64 || i == len(t.log) && position == wire.Earliest {
		return 0
	}
	return i
}

func (c *session) flow(m *wire.Flow) {
	if k, ok := c.consumers[m.Consumer]; ok {
		k.flow(int(m.Permits))
		k.sub.dispatch()
	}
}

func (c *session) ack(m *wire.Ack) {
	k, ok := c.consumers[m.Consumer]
	if !ok {
		return
	}
	k.sub.ack(m)
	if m.Request == wire.Absent {
		return
	}
	if f := &c.server.faults; f.ackResponses != 0 {
		f.ackResponses--
		return
	}
	c.send(&wire.AckResponse{Consumer: k.id, Request: m.Request}, nil)
}

func (c *session) redeliver(m *wire.Redeliver) {
	if k, ok := c.consumers[m.Consumer]; ok {
		k.sub.redeliver(k, m)
	}
}

// seek closes the consumers before it answers; they subscribe again.
func (c *session) seek(m *wire.Seek) {
	k, ok := c.consumers[m.Consumer]
	if !ok {
		c.fail(m.Request, failf(wire.MetadataError, "Consumer not found"))
		return
	}
	if m.ID == nil && m.PublishTime == 0 {
		c.fail(m.Request, failf(wire.MetadataError, "Message id and message publish time were not present"))
		return
	}
	t := k.sub.topic
	offset := len(t.log)
	switch {
	case m.ID == nil:
		offset = t.findTime(m.PublishTime)
	case m.ID.Ledger == math.MaxUint64: // earliest
		offset = 0
	case m.ID.Ledger < math.MaxInt64:
		offset, _ = t.find(m.ID.Ledger, m.ID.Entry)
	}
	k.sub.reset(offset)
	if m.ID != nil && len(m.ID.AckSet) > 0 && offset < len(t.log) && c.server.indexAcks {
		k.sub.cursor.ackIndexes(offset, t.log[offset].messages, m.ID.AckSet)
	}
	c.success(m.Request)
}

func (c *session) unsubscribe(m *wire.Unsubscribe) {
	k, ok := c.consumers[m.Consumer]
	if !ok {
		c.fail(m.Request, failf(wire.MetadataError, "Consumer not found"))
		return
	}
	sub := k.sub
	if len(sub.consumers) > 1 && !m.Force {
		c.fail(m.Request, failf(wire.MetadataError, "Unconnected or shared consumer attempting to unsubscribe"))
		return
	}
	if len(sub.consumers) > 1 {
		sub.closeConsumers(k)
	}
	delete(c.consumers, k.id)
	sub.remove(k)
	delete(sub.topic.subs, sub.name)
	c.success(m.Request)
}

func (c *session) closeConsumer(m *wire.CloseConsumer) {
	if k, ok := c.consumers[m.Consumer]; ok {
		delete(c.consumers, m.Consumer)
		k.sub.remove(k)
	}
	c.success(m.Request)
}

func (c *session) getLastMessageID(m *wire.GetLastMessageID) {
	k, ok := c.consumers[m.Consumer]
	if !ok {
		c.fail(m.Request, failf(wire.MetadataError, "Consumer not found"))
		return
	}
	if !k.sub.topic.name.persistent() {
		c.fail(m.Request, failf(wire.UnknownError, "getLastMessageId is not supported on non-persistent topics"))
		return
	}
	c.send(&wire.GetLastMessageIDResponse{Request: m.Request, Last: k.sub.topic.last(),
		MarkDelete: k.sub.markDelete()}, nil)
}

// consumerStats closes the connection of a client that asks for a consumer it does not have, as Pulsar 4.0.7 does.
func (c *session) consumerStats(m *wire.ConsumerStats) error {
	k, ok := c.consumers[m.Consumer]
	if !ok {
		return fmt.Errorf("consumer %d is unknown", m.Consumer)
	}
	c.send(&wire.ConsumerStatsResponse{Request: m.Request, Name: k.name, Permits: uint64(max(k.permits, 0)),
		Unacked: uint64(k.unacked), Blocked: k.blocked, SubType: k.sub.kind.String(),
		Backlog: uint64(k.sub.cursor.backlog(len(k.sub.topic.log)))}, nil)
	return nil
}
