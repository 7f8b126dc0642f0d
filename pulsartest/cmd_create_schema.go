package pulsartest

import (
	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// cmdGetOrCreateSchema stores a schema unless the topic has it.
type cmdGetOrCreateSchema struct {
	Request uint64
	Topic   string
	Schema  *wire.Schema
}

var typeGetOrCreateSchema = wire.Register[cmdGetOrCreateSchema](39, "GET_OR_CREATE_SCHEMA")

func (*cmdGetOrCreateSchema) Type() wire.Type { return typeGetOrCreateSchema }

func (m *cmdGetOrCreateSchema) Fields(c *wire.Codec) {
	c.Uint64(1, wire.Required, 0, &m.Request)
	c.String(2, wire.Required, &m.Topic)
	wire.One(c, 3, wire.Required, &m.Schema)
}

// cmdGetOrCreateSchemaResponse answers GetOrCreateSchema.
type cmdGetOrCreateSchemaResponse struct {
	Request uint64
	Error   wire.ServerError
	Message string
	Version []byte
}

var typeGetOrCreateSchemaResponse = wire.Register[cmdGetOrCreateSchemaResponse](40, "GET_OR_CREATE_SCHEMA_RESPONSE")

func (*cmdGetOrCreateSchemaResponse) Type() wire.Type { return typeGetOrCreateSchemaResponse }

func (m *cmdGetOrCreateSchemaResponse) Fields(c *wire.Codec) {
	c.Uint64(1, wire.Required, 0, &m.Request)
	wire.Enum(c, 2, wire.Optional, &m.Error)
	c.String(3, wire.Optional, &m.Message)
	c.Bytes(4, wire.Optional, &m.Version)
}

func (m *cmdGetOrCreateSchema) handle(c *session) error {
	t, err := c.server.topic(m.Topic, true)
	if err != nil {
		return err
	}
	version, err := c.server.addSchema(t.name, m.Schema)
	if err != nil {
		return err
	}
	c.send(&cmdGetOrCreateSchemaResponse{Request: m.Request, Version: append([]byte{}, version...)}, nil)
	return nil
}

func (m *cmdGetOrCreateSchema) describe(_ *session, d *Command) { d.setTopic(m.Topic) }

func (m *cmdGetOrCreateSchema) refuse(err error) wire.Command {
	return &cmdGetOrCreateSchemaResponse{Request: m.Request, Version: []byte{}, Error: codeOf(err),
		Message: err.Error()}
}
