package main

import (
	"math"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/hamba/avro/v2"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

// JSON has no NaN.
func TestPeekDoesNotDecodeAPayloadWithNaN(t *testing.T) {
	b := newBroker(t)
	b.subscribe(origin+"-avro-DLQ", "audit")
	const schema = `{"type":"record","name":"r","fields":[{"name":"a","type":"double"}]}`
	payload, err := avro.Marshal(avro.MustParse(schema), map[string]any{"a": math.NaN()})
	require.NoError(t, err)
	_, ok := decode(&admin.Schema{Type: "AVRO", Data: schema}, &deadletter.Letter{Payload: payload})
	require.False(t, ok)
	p, err := b.client.CreateProducer(pulsar.ProducerOptions{Topic: origin + "-avro-DLQ",
		Schema: pulsar.NewAvroSchema(schema, nil)})
	require.NoError(t, err)
	defer p.Close()
	_, err = p.Send(t.Context(), &pulsar.ProducerMessage{Payload: payload})
	require.NoError(t, err)
	for _, args := range [][]string{{"peek", "orders-avro-DLQ", "-payload"},
		{"peek", "orders-avro-DLQ", "-payload", "-json"}} {
		code, _, stderr := dlqRun("", args...)
		require.Zero(t, code, stderr)
	}
}
