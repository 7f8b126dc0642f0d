package pulsartest

import (
	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// cmdGetLastMessageID asks for the last message of the consumer's topic.
type cmdGetLastMessageID struct {
	Consumer uint64
	Request  uint64
}

var typeGetLastMessageID = wire.Register[cmdGetLastMessageID](29, "GET_LAST_MESSAGE_ID")

func (*cmdGetLastMessageID) Type() wire.Type { return typeGetLastMessageID }

func (m *cmdGetLastMessageID) Fields(c *wire.Codec) {
	c.Uint64(1, wire.Required, 0, &m.Consumer)
	c.Uint64(2, wire.Required, 0, &m.Request)
}

// cmdGetLastMessageIDResponse answers GetLastMessageID.
type cmdGetLastMessageIDResponse struct {
	Last       *wire.MessageID
	Request    uint64
	MarkDelete *wire.MessageID
}

var typeGetLastMessageIDResponse = wire.Register[cmdGetLastMessageIDResponse](30, "GET_LAST_MESSAGE_ID_RESPONSE")

func (*cmdGetLastMessageIDResponse) Type() wire.Type { return typeGetLastMessageIDResponse }

func (m *cmdGetLastMessageIDResponse) Fields(c *wire.Codec) {
	wire.One(c, 1, wire.Required, &m.Last)
	c.Uint64(2, wire.Required, 0, &m.Request)
	wire.One(c, 3, wire.Optional, &m.MarkDelete)
}

func (m *cmdGetLastMessageID) handle(c *session) error {
	k, ok := c.consumers[m.Consumer]
	if !ok {
		return failf(wire.MetadataError, "Consumer not found")
	}
	if !k.sub.topic.name.persistent() {
		return failf(wire.UnknownError, "getLastMessageId is not supported on non-persistent topics")
	}
	c.send(&cmdGetLastMessageIDResponse{Request: m.Request, Last: k.sub.topic.last(), MarkDelete: k.sub.markDelete()},
		nil)
	return nil
}

func (m *cmdGetLastMessageID) describe(c *session, d *Command) { d.setConsumer(c, m.Consumer) }

func (m *cmdGetLastMessageID) refuse(err error) wire.Command {
	return result(m.Request, err)
}
