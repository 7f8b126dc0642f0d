package pulsartest

import (
	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// cmdGetSchema asks for a schema of a topic, by default the newest.
type cmdGetSchema struct {
	Request uint64
	Topic   string
	Version []byte
}

var typeGetSchema = wire.Register[cmdGetSchema](34, "GET_SCHEMA")

func (*cmdGetSchema) Type() wire.Type { return typeGetSchema }

func (m *cmdGetSchema) Fields(c *wire.Codec) {
	c.Uint64(1, wire.Required, 0, &m.Request)
	c.String(2, wire.Required, &m.Topic)
	c.Bytes(3, wire.Optional, &m.Version)
}

// cmdGetSchemaResponse answers GetSchema.
type cmdGetSchemaResponse struct {
	Request uint64
	Error   wire.ServerError
	Message string
	Schema  *wire.Schema
	Version []byte
}

var typeGetSchemaResponse = wire.Register[cmdGetSchemaResponse](35, "GET_SCHEMA_RESPONSE")

func (*cmdGetSchemaResponse) Type() wire.Type { return typeGetSchemaResponse }

func (m *cmdGetSchemaResponse) Fields(c *wire.Codec) {
	c.Uint64(1, wire.Required, 0, &m.Request)
	wire.Enum(c, 2, wire.Optional, &m.Error)
	c.String(3, wire.Optional, &m.Message)
	wire.One(c, 4, wire.Optional, &m.Schema)
	c.Bytes(5, wire.Optional, &m.Version)
}

func (m *cmdGetSchema) handle(c *session) error {
	n, err := parseTopic(m.Topic)
	schema, i := c.server.schemaAt(n, m.Version)
	if err != nil || schema == nil {
		return failf(wire.TopicNotFound, "Topic not found or no-schema")
	}
	c.send(&cmdGetSchemaResponse{Request: m.Request, Schema: schema, Version: schemaVersion(i)}, nil)
	return nil
}

func (m *cmdGetSchema) describe(_ *session, d *Command) { d.setTopic(m.Topic) }

func (m *cmdGetSchema) refuse(err error) wire.Command {
	return &cmdGetSchemaResponse{Request: m.Request, Error: codeOf(err), Message: err.Error()}
}
