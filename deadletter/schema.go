package deadletter

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

// Schema is one version of a topic's schema, from the schema registry.
type Schema struct {
	Type       string            `json:"type"`       // AVRO, JSON, STRING …
	Data       string            `json:"data"`       // its definition, if it has one
	Properties map[string]string `json:"properties"` // its own, as the producer set them
}

// schemas are those of a topic, by their version. What could not be found is not asked for again.
type schemas struct {
	admin Admin
	topic string
	mu    sync.Mutex
	known map[string]*Schema
}

// Schema returns the schema that a letter was written with, or nil if the letter has none or the schema cannot be found.
func (t *Topic) Schema(ctx context.Context, l *Letter) (*Schema, error) {
	if l.Schema == "" || t.o.Admin.URL == "" {
		return nil, nil
	}
	s := &t.schemas
	s.mu.Lock()
	known, ok := s.known[l.Schema]
	s.mu.Unlock()
	if ok {
		return known, nil
	}
	name := strings.TrimPrefix(admin.Topic(s.topic), "persistent/")
	schema := &Schema{}
	err := s.admin.call(ctx, "schemas/"+name+"/schema/"+l.Schema, schema)
	if notFound(err) {
		schema, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[string]*Schema{}
	}
	s.known[l.Schema] = schema
	return schema, nil
}

// schemaTypes are the protocol's numbers. Those of key and value, and of native Protobuf, are missing: the admin API does not
// return their definitions as they were, and upstream cannot write the keys of the first.
var schemaTypes = []string{"NONE", "STRING", "JSON", "PROTOBUF", "AVRO", "BOOLEAN", "INT8", "INT16", "INT32", "INT64", "FLOAT", "DOUBLE",
	"DATE", "TIME", "TIMESTAMP", "", "INSTANT", "LOCAL_DATE", "LOCAL_TIME", "LOCAL_DATE_TIME"}

// raw is a schema for payloads that are encoded already.
type raw struct{ info *pulsar.SchemaInfo }

var errRaw = errors.New("deadletter: the payload is encoded already")

func (raw) Encode(any) ([]byte, error)          { return nil, errRaw }
func (raw) Decode([]byte, any) error            { return errRaw }
func (raw) Validate([]byte) error               { return nil }
func (r raw) GetSchemaInfo() *pulsar.SchemaInfo { return r.info }

// pulsar is the schema for a producer, or nil if there is no way to have the same.
func (s *Schema) pulsar() pulsar.Schema {
	number := slices.Index(schemaTypes, s.Type)
	if number < 1 {
		return nil
	}
	return raw{&pulsar.SchemaInfo{Name: "letter", Type: pulsar.SchemaType(number), Schema: s.Data, Properties: s.Properties}}
}
