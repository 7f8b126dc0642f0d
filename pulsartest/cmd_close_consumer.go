package pulsartest

import (
	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// cmdCloseConsumer ends a consumer. Either side may send it.
type cmdCloseConsumer struct {
	Consumer uint64
	Request  uint64
}

var typeCloseConsumer = wire.Register[cmdCloseConsumer](16, "CLOSE_CONSUMER")

func (*cmdCloseConsumer) Type() wire.Type { return typeCloseConsumer }

func (m *cmdCloseConsumer) Fields(c *wire.Codec) {
	c.Uint64(1, wire.Required, 0, &m.Consumer)
	c.Uint64(2, wire.Required, 0, &m.Request)
}

func (m *cmdCloseConsumer) handle(c *session) error {
	if k, ok := c.consumers[m.Consumer]; ok {
		delete(c.consumers, m.Consumer)
		k.sub.remove(k)
	}
	c.send(result(m.Request, nil), nil)
	return nil
}

func (m *cmdCloseConsumer) describe(c *session, d *Command) { d.setConsumer(c, m.Consumer) }

func (m *cmdCloseConsumer) answer(err error) wire.Command { return result(m.Request, err) }
