package pulsartest

import (
	"bytes"
	"encoding/binary"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// putSchema stores a schema unless the topic has it, and returns its version:
// eight bytes, counted from 0. Without a schema there is none. The partitions
// of a topic share its schemas.
func (s *Server) putSchema(n topicName, schema *wire.Schema) []byte {
	if schema == nil {
		return nil
	}
	all := s.schemas[n.base()]
	for i, have := range all {
		if have.Type == schema.Type && bytes.Equal(have.Data, schema.Data) {
			return schemaVersion(i)
		}
	}
	s.schemas[n.base()] = append(all, *schema)
	return schemaVersion(len(all))
}

func schemaVersion(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) }

// schemaAt returns the schema of that version, by default the newest.
func (s *Server) schemaAt(n topicName, version []byte) (*wire.Schema, int) {
	all := s.schemas[n.base()]
	i := len(all) - 1
	if len(version) == 8 {
		if v := binary.BigEndian.Uint64(version); v < uint64(len(all)) {
			i = int(v)
		}
	}
	if i < 0 {
		return nil, 0
	}
	return &all[i], i
}

func (c *session) getSchema(m *wire.GetSchema) {
	response := &wire.GetSchemaResponse{Request: m.Request}
	n, err := parseTopic(m.Topic)
	if schema, i := c.server.schemaAt(n, m.Version); err == nil && schema != nil {
		response.Schema, response.Version = schema, schemaVersion(i)
	} else {
		response.Error, response.Message = wire.TopicNotFound, "Topic not found or no-schema"
	}
	c.send(response, nil)
}

func (c *session) getOrCreateSchema(m *wire.GetOrCreateSchema) {
	response := &wire.GetOrCreateSchemaResponse{Request: m.Request, Version: []byte{}}
	t, err := c.server.topic(m.Topic, true)
	if err != nil {
		response.Error, response.Message = codeOf(err), err.Error()
	} else if version := c.server.putSchema(t.name, m.Schema); version != nil {
		response.Version = version
	}
	c.send(response, nil)
}
