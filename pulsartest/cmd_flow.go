package pulsartest

import (
	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// cmdFlow permits the broker to send more messages.
type cmdFlow struct {
	Consumer uint64
	Permits  uint32
}

var typeFlow = wire.Register[cmdFlow](11, "FLOW")

func (*cmdFlow) Type() wire.Type { return typeFlow }

func (m *cmdFlow) Fields(c *wire.Codec) {
	c.Uint64(1, wire.Required, 0, &m.Consumer)
	c.Uint32(2, wire.Required, 0, &m.Permits)
}

func (m *cmdFlow) handle(c *session) error {
	if k, ok := c.consumers[m.Consumer]; ok {
		k.flow(int(m.Permits))
		k.sub.dispatch()
	}
	return nil
}

func (m *cmdFlow) describe(c *session, d *Command) {
	d.setConsumer(c, m.Consumer)
	d.Permits = int(m.Permits)
}
