package pulsartest

import (
	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// cmdRedeliver asks the broker to send entries again. Without IDs, it asks for all entries that the consumer has not
// acknowledged.
type cmdRedeliver struct {
	Consumer uint64
	IDs      []wire.MessageID
	Epoch    uint64
}

var typeRedeliver = wire.Register[cmdRedeliver](20, "REDELIVER_UNACKNOWLEDGED_MESSAGES")

func (*cmdRedeliver) Type() wire.Type { return typeRedeliver }

func (m *cmdRedeliver) Fields(c *wire.Codec) {
	c.Uint64(1, wire.Required, 0, &m.Consumer)
	wire.Many(c, 2, &m.IDs)
	c.Uint64(3, wire.Optional, wire.Absent, &m.Epoch)
}

func (m *cmdRedeliver) handle(c *session) error {
	if k, ok := c.consumers[m.Consumer]; ok {
		k.sub.redeliver(k, m)
	}
	return nil
}

func (m *cmdRedeliver) describe(c *session, d *Command) {
	d.setConsumer(c, m.Consumer)
	d.addIDs(m.IDs...)
}
