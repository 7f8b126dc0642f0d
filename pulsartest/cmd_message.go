package pulsartest

import (
	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// cmdMessage delivers an entry, which follows the command in the frame.
type cmdMessage struct {
	Consumer        uint64
	ID              wire.MessageID
	RedeliveryCount uint32
	AckSet          []int64
	Epoch           uint64
}

var typeMessage = wire.Register[cmdMessage](9, "MESSAGE")

func (*cmdMessage) Type() wire.Type { return typeMessage }

func (m *cmdMessage) Fields(c *wire.Codec) {
	id := &m.ID
	c.Uint64(1, wire.Required, 0, &m.Consumer)
	wire.One(c, 2, wire.Required, &id)
	c.Uint32(3, wire.Optional, 0, &m.RedeliveryCount)
	c.Int64s(4, &m.AckSet)
	c.Uint64(5, wire.Optional, wire.Absent, &m.Epoch)
	if c.Decoding() && id != nil {
		m.ID = *id
	}
}

func (m *cmdMessage) describe(c *session, d *Command) {
	d.setConsumer(c, m.Consumer)
	d.RedeliveryCount = m.RedeliveryCount
	d.addIDs(m.ID)
}
