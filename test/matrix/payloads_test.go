package matrix

import (
	"strings"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

// Values with a schema.

type order struct {
	ID string `json:"id" avro:"id"`
}

const orderDefinition = `{"type": "record", "name": "order", "fields": [{"name": "id", "type": "string"}]}`

var (
	jsonSchema = pulsar.NewJSONSchema(orderDefinition, nil)
	avroSchema = pulsar.NewAvroSchema(orderDefinition, nil)
)

func orderMessage(id string) *pulsar.ProducerMessage {
	return &pulsar.ProducerMessage{Value: &order{id}}
}

func orderID(t *testing.T, msg pulsar.Message) string {
	t.Helper()
	var o order
	require.NoError(t, msg.GetSchemaValue(&o))
	return o.ID
}

// Messages in chunks.

func chunking(o *pulsar.ProducerOptions) {
	o.EnableChunking, o.DisableBatching, o.ChunkMaxMessageSize = true, true, 1000
}

var padding = strings.Repeat("x", 4000)

func large(payload string) *pulsar.ProducerMessage {
	return &pulsar.ProducerMessage{Payload: []byte(payload + padding)}
}

func small(t *testing.T, msg pulsar.Message) string {
	t.Helper()
	text, ok := strings.CutSuffix(string(msg.Payload()), padding)
	require.True(t, ok)
	return text
}
