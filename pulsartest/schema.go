package pulsartest

import (
	"bytes"
	"encoding/binary"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// addSchema stores a schema unless the topic has it, and returns the version of the schema as eight bytes. Versions
// count from 0. If schema is nil, the version is nil. The partitions of a topic share its schemas. addSchema refuses a
// schema of another type than the newest one. Two schemas of one type count as compatible.
func (s *Server) addSchema(n topicName, schema *wire.Schema) ([]byte, error) {
	if schema == nil {
		return nil, nil
	}
	all := s.schemas[n.base()]
	for i, have := range all {
		if have.Type == schema.Type && bytes.Equal(have.Data, schema.Data) {
			return schemaVersion(i), nil
		}
	}
	if len(all) > 0 && all[len(all)-1].Type != schema.Type {
		return nil, failf(wire.IncompatibleSchema, "Incompatible schema: exists schema type %s, new schema type %s",
			all[len(all)-1].Type, schema.Type)
	}
	stored := *schema
	stored.Name = n.namespace + "/" + n.base().local
	s.schemas[n.base()] = append(all, stored)
	return schemaVersion(len(all)), nil
}

// admitSchema checks the schema of a new consumer. It stores the first schema of a topic, but refuses it if the topic
// has messages, producers or consumers.
func (t *topic) admitSchema(schema *wire.Schema) error {
	if schema == nil {
		return nil
	}
	all := t.server.schemas[t.name.base()]
	if len(all) > 0 {
		if newest := all[len(all)-1].Type; newest != schema.Type {
			return failf(wire.IncompatibleSchema, "Incompatible schema: exists schema type %s, new schema type %s",
				newest, schema.Type)
		}
		return nil
	}
	used := len(t.log) > 0 || len(t.producers) > 0
	for _, sub := range t.subs {
		used = used || len(sub.consumers) > 0
	}
	if used {
		return failf(wire.IncompatibleSchema,
			"Failed to add schema to an active topic with empty(BYTES) schema: new schema type %s", schema.Type)
	}
	_, err := t.server.addSchema(t.name, schema)
	return err
}

func schemaVersion(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) }

// schemaAt returns the schema of a version and the number of the version. An empty version means the newest schema. If
// there is no such schema, schemaAt returns nil.
func (s *Server) schemaAt(n topicName, version []byte) (*wire.Schema, int) {
	all := s.schemas[n.base()]
	i := uint64(len(all)) - 1
	if len(version) == 8 {
		i = binary.BigEndian.Uint64(version)
	}
	if i >= uint64(len(all)) {
		return nil, 0
	}
	return &all[i], int(i)
}
