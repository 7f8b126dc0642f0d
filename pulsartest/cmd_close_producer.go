package pulsartest

import (
	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// cmdCloseProducer ends a producer. Either side may send it.
type cmdCloseProducer struct {
	Producer uint64
	Request  uint64
}

var typeCloseProducer = wire.Register[cmdCloseProducer](15, "CLOSE_PRODUCER")

func (*cmdCloseProducer) Type() wire.Type { return typeCloseProducer }

func (m *cmdCloseProducer) Fields(c *wire.Codec) {
	c.Uint64(1, wire.Required, 0, &m.Producer)
	c.Uint64(2, wire.Required, 0, &m.Request)
}

func (m *cmdCloseProducer) handle(c *session) error {
	c.send(result(m.Request, nil), nil)
	if p, ok := c.producers[m.Producer]; ok {
		delete(c.producers, m.Producer)
		p.topic.removeProducer(p)
	}
	return nil
}

func (m *cmdCloseProducer) describe(c *session, d *Command) { d.setProducer(c, m.Producer) }

func (m *cmdCloseProducer) answer(err error) wire.Command { return result(m.Request, err) }
