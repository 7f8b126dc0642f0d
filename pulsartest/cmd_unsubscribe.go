package pulsartest

import (
	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// cmdUnsubscribe deletes a subscription.
type cmdUnsubscribe struct {
	Consumer uint64
	Request  uint64
	Force    bool
}

var typeUnsubscribe = wire.Register[cmdUnsubscribe](12, "UNSUBSCRIBE")

func (*cmdUnsubscribe) Type() wire.Type { return typeUnsubscribe }

func (m *cmdUnsubscribe) Fields(c *wire.Codec) {
	c.Uint64(1, wire.Required, 0, &m.Consumer)
	c.Uint64(2, wire.Required, 0, &m.Request)
	c.Bool(3, wire.Optional, false, &m.Force)
}

func (m *cmdUnsubscribe) handle(c *session) error {
	k, ok := c.consumers[m.Consumer]
	if !ok {
		return failf(wire.MetadataError, "Consumer not found")
	}
	sub := k.sub
	if len(sub.consumers) > 1 && !m.Force {
		return failf(wire.MetadataError, "Unconnected or shared consumer attempting to unsubscribe")
	}
	if len(sub.consumers) > 1 {
		sub.closeConsumers(k)
	}
	delete(c.consumers, k.id)
	sub.remove(k)
	delete(sub.topic.subs, sub.name)
	c.send(result(m.Request, nil), nil)
	return nil
}

func (m *cmdUnsubscribe) describe(c *session, d *Command) { d.setConsumer(c, m.Consumer) }

func (m *cmdUnsubscribe) answer(err error) wire.Command { return result(m.Request, err) }
