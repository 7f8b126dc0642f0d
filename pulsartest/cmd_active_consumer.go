package pulsartest

import (
	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// cmdActiveConsumerChange says whether a Failover consumer is the active one.
type cmdActiveConsumerChange struct {
	Consumer uint64
	Active   bool
}

var typeActiveConsumerChange = wire.Register[cmdActiveConsumerChange](31, "ACTIVE_CONSUMER_CHANGE")

func (*cmdActiveConsumerChange) Type() wire.Type { return typeActiveConsumerChange }

func (m *cmdActiveConsumerChange) Fields(c *wire.Codec) {
	c.Uint64(1, wire.Required, 0, &m.Consumer)
	c.Bool(2, wire.Optional, false, &m.Active)
}

func (m *cmdActiveConsumerChange) describe(c *session, d *Command) { d.setConsumer(c, m.Consumer) }
