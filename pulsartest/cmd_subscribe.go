package pulsartest

import (
	"fmt"
	"math"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// cmdSubscribe creates a consumer.
type cmdSubscribe struct {
	Topic         string
	Subscription  string
	SubType       wire.SubType
	Consumer      uint64
	Request       uint64
	Name          string
	Priority      int32
	Durable       bool
	Metadata      []wire.KeyValue
	ReadCompacted bool
	Schema        *wire.Schema
	From          startPoint
	ForceTopic    bool
	KeyShared     *wire.KeySharedMeta
	Epoch         uint64
}

// startPoint is where a new subscription begins.
type startPoint struct {
	ID              *wire.MessageID
	Position        wire.InitialPosition
	RollbackSeconds uint64
}

var typeSubscribe = wire.Register[cmdSubscribe](4, "SUBSCRIBE")

func (*cmdSubscribe) Type() wire.Type { return typeSubscribe }

func (m *cmdSubscribe) Fields(c *wire.Codec) {
	c.String(1, wire.Required, &m.Topic)
	c.String(2, wire.Required, &m.Subscription)
	wire.Enum(c, 3, wire.Required, &m.SubType)
	c.Uint64(4, wire.Required, 0, &m.Consumer)
	c.Uint64(5, wire.Required, 0, &m.Request)
	c.String(6, wire.Optional, &m.Name)
	c.Int32(7, wire.Optional, 0, &m.Priority)
	c.Bool(8, wire.Optional, true, &m.Durable)
	wire.One(c, 9, wire.Optional, &m.From.ID)
	wire.Many(c, 10, &m.Metadata)
	c.Bool(11, wire.Optional, false, &m.ReadCompacted)
	wire.One(c, 12, wire.Optional, &m.Schema)
	wire.Enum(c, 13, wire.Optional, &m.From.Position)
	c.Bool(15, wire.Optional, true, &m.ForceTopic)
	c.Uint64(16, wire.Optional, 0, &m.From.RollbackSeconds)
	wire.One(c, 17, wire.Optional, &m.KeyShared)
	c.Uint64(19, wire.Optional, wire.Absent, &m.Epoch)
}

func (m *cmdSubscribe) handle(c *session) error {
	if _, ok := c.consumers[m.Consumer]; ok { // the client asks again
		c.send(result(m.Request, nil), nil)
		return nil
	}
	if m.ReadCompacted && m.SubType != wire.Exclusive && m.SubType != wire.Failover {
		return failf(wire.NotAllowedError, "readCompacted only allowed on failover or exclusive subscriptions")
	}
	s := c.server
	t, err := s.topic(m.Topic, m.ForceTopic)
	if err != nil {
		return err
	}
	if err := t.admitSchema(m.Schema); err != nil {
		return err
	}
	k := &consumer{session: c, id: m.Consumer, name: m.Name, priority: m.Priority, epoch: m.Epoch, meta: m.Metadata}
	if m.KeyShared != nil {
		k.keys = *m.KeyShared
	}
	if k.name == "" {
		k.name = fmt.Sprintf("%05x", s.nextName)
		s.nextName++
	}
	sub, err := m.subscription(t)
	if err != nil {
		return err
	}
	if err := sub.add(k, m.SubType); err != nil {
		if len(sub.consumers) == 0 && !sub.durable {
			delete(t.subs, sub.name)
		}
		return err
	}
	c.consumers[k.id] = k
	c.log.Debug("pulsartest: consumer", "topic", t.name.String(), "subscription", sub.name, "consumer", k.name)
	c.send(result(m.Request, nil), nil)
	sub.added(k)
	return nil
}

// subscription returns the subscription that m names, and creates it if needed.
func (m *cmdSubscribe) subscription(t *topic) (*subscription, error) {
	sub, known := t.subs[m.Subscription]
	switch {
	case known && sub.durable != m.Durable:
		return nil, failf(wire.NotAllowedError, "Durable subscription with the same name already exists.")
	case known:
		return sub, nil
	case m.Durable:
		sub = t.subscription(m.Subscription, m.From.Position)
	default:
		sub = newSubscription(t, m.Subscription, false, t.start(m.From.ID, m.From.Position))
		t.subs[m.Subscription] = sub
	}
	if m.From.RollbackSeconds > 0 {
		since := t.server.millis() - int64(min(m.From.RollbackSeconds, math.MaxInt32))*1000
		sub.cursor = newCursor(t.findTime(uint64(max(since, 0))))
	}
	return sub, nil
}

func (m *cmdSubscribe) describe(_ *session, d *Command) {
	d.setTopic(m.Topic)
	d.Subscription, d.Consumer = m.Subscription, m.Name
}

func (m *cmdSubscribe) answer(err error) wire.Command { return result(m.Request, err) }
