package deadletter

import (
	"slices"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
)

// schemaTypes has the types of schemas by their numbers in the protocol. Key/value and native Protobuf schemas are
// missing, since the admin API changes their definitions, and upstream cannot write the keys of key/value messages.
var schemaTypes = []string{"NONE", "STRING", "JSON", "PROTOBUF", "AVRO", "BOOLEAN", "INT8", "INT16", "INT32", "INT64",
	"FLOAT", "DOUBLE",
	"DATE", "TIME", "TIMESTAMP", "", "INSTANT", "LOCAL_DATE", "LOCAL_TIME", "LOCAL_DATE_TIME"}

// rawSchema returns s as a schema for a producer, or nil if a producer cannot have a schema of this type.
func rawSchema(s *admin.Schema) pulsar.Schema {
	number := slices.Index(schemaTypes, s.Type)
	if number < 1 {
		return nil
	}
	return publishing.Encoded{Info: &pulsar.SchemaInfo{Name: "letter", Type: pulsar.SchemaType(number), Schema: s.Data,
		Properties: s.Properties}}
}
