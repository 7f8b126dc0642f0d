package pulsartest

import (
	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// cmdAck acknowledges entries, messages of batches, or everything up to one message.
type cmdAck struct {
	Consumer uint64
	AckType  wire.AckType
	IDs      []wire.MessageID
	Request  uint64
}

var typeAck = wire.Register[cmdAck](10, "ACK")

func (*cmdAck) Type() wire.Type { return typeAck }

func (m *cmdAck) Fields(c *wire.Codec) {
	c.Uint64(1, wire.Required, 0, &m.Consumer)
	wire.Enum(c, 2, wire.Required, &m.AckType)
	wire.Many(c, 3, &m.IDs)
	c.Uint64(8, wire.Optional, wire.Absent, &m.Request)
}

// cmdAckResponse answers an Ack that has a request ID. Clients treat an answer with a Message as a failure.
type cmdAckResponse struct {
	Consumer uint64
	Error    wire.ServerError
	Message  string
	Request  uint64
}

var typeAckResponse = wire.Register[cmdAckResponse](38, "ACK_RESPONSE")

func (*cmdAckResponse) Type() wire.Type { return typeAckResponse }

func (m *cmdAckResponse) Fields(c *wire.Codec) {
	c.Uint64(1, wire.Required, 0, &m.Consumer)
	wire.Enum(c, 4, wire.Optional, &m.Error)
	c.String(5, wire.Optional, &m.Message)
	c.Uint64(6, wire.Optional, 0, &m.Request)
}

func (m *cmdAck) handle(c *session) error {
	k, ok := c.consumers[m.Consumer]
	if !ok {
		return nil
	}
	k.sub.ack(m)
	if response := m.answer(nil); response != nil {
		c.send(response, nil)
	}
	return nil
}

func (m *cmdAck) describe(c *session, d *Command) {
	d.setConsumer(c, m.Consumer)
	d.Cumulative = m.AckType == wire.Cumulative
	d.addIDs(m.IDs...)
}

func (m *cmdAck) answer(err error) wire.Command {
	switch {
	case m.Request == wire.Absent:
		return nil
	case err != nil:
		return &cmdAckResponse{Consumer: m.Consumer, Request: m.Request, Error: codeOf(err), Message: err.Error()}
	}
	return &cmdAckResponse{Consumer: m.Consumer, Request: m.Request}
}

func (m *cmdAckResponse) describe(c *session, d *Command) { d.setConsumer(c, m.Consumer) }
