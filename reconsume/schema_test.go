package reconsume_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// order has the fields of all four schemas.
type order struct {
	A string  `avro:"a"`
	F float32 `avro:"f"`
	B string  `avro:"b"`
	N int64   `avro:"n"`
}

const before = `{"type":"record","name":"R","namespace":"n","fields":[`

var (
	orders1 = pulsar.NewAvroSchema(before+`{"name":"a","type":"string"},{"name":"f","type":"float"}]}`, nil)
	orders2 = pulsar.NewAvroSchema(before+`{"name":"a","type":"string"},{"name":"f","type":"float"},{"name":"b","type":"string","default":"none"}]}`, nil)
	orders3 = pulsar.NewAvroSchema(before+`{"name":"f","type":"float"},{"name":"a","type":"string"},{"name":"b","type":"string","default":"none"}]}`, nil)
	another = pulsar.NewAvroSchema(before+`{"name":"n","type":"long"}]}`, nil)
)

// publishes are the two ways to publish a message, by the suffix of the topic.
var publishes = map[string]func(*reconsume.Reconsumer, pulsar.ConsumerMessage) error{
	"DLQ": func(r *reconsume.Reconsumer, cm pulsar.ConsumerMessage) error { return r.DeadLetter(bg, cm, nil) },
	"RETRY": func(r *reconsume.Reconsumer, cm pulsar.ConsumerMessage) error {
		return r.LaterAfter(bg, cm, 50*time.Millisecond, nil)
	},
}

func TestPayloadKeepsTheVersionOfItsSchema(t *testing.T) {
	whole, err := orders2.Encode(order{A: "x", B: "y"})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		schema  pulsar.Schema
		payload []byte
		want    string // what a reader decodes
	}{
		"the consumer's":           {schema: orders2, want: "a b"},
		"older":                    {schema: orders1, want: "a "},
		"with fields in any order": {schema: orders3, want: "a b"},
		"older, damaged":           {schema: orders1, payload: []byte{1, 2, 3}},
		"the consumer's, damaged":  {schema: orders2, payload: slices.Clip(whole)[:len(whole)-1]},
		"none":                     {payload: []byte("no R")},
	} {
		for kind, publish := range publishes {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				b := newBroker(t)
				msg := &pulsar.ProducerMessage{Payload: c.payload}
				if c.payload == nil {
					msg.Value = order{A: "a", F: float32(math.NaN()), B: "b"}
				}
				if c.schema == nil {
					b.send(orders2, &pulsar.ProducerMessage{Value: order{}}) // first, or the topic would take no schema
				}
				b.send(c.schema, msg)
				in := b.subscribe(pulsar.ConsumerOptions{Topic: b.topic, Type: pulsar.Shared, Schema: orders2})
				out := b.subscribe(pulsar.ConsumerOptions{Topic: b.topic + "-sub-" + kind, Type: pulsar.Shared,
					Schema: orders2})
				received := b.receive(in)
				if c.schema == nil {
					received = b.receive(in)
				}
				require.NoError(t, publish(b.reconsumer(reconsume.Options{Schema: orders2}), received))
				got := b.receive(out)
				require.Equal(t, received.Payload(), got.Payload())
				require.Empty(t, got.Properties()[reconsume.PropertyOriginSchemaVersion])
				if c.want != "" {
					var value order
					require.NoError(t, got.GetSchemaValue(&value))
					require.Equal(t, c.want, value.A+" "+value.B)
				}
			})
		}
	}
}

// The topic refuses the schema, or the message is too large to have one.
func TestPropertyHasTheVersionIfTheMessageCannotHaveIt(t *testing.T) {
	for _, name := range []string{"refused", "large"} {
		for kind, publish := range publishes {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				b := newBroker(t)
				topic, schema, msg := b.topic+"-"+kind, pulsar.Schema(another), &pulsar.ProducerMessage{Value: order{N: 5}}
				if name == "large" {
					schema, msg = orders1, &pulsar.ProducerMessage{Value: order{A: string(make([]byte, 2<<20))}}
				} else if b.inProcess != nil { // the broker in this process compares no schemas
					b.inProcess.Inject("GET_OR_CREATE_SCHEMA", topic, -1,
						pulsartest.Fail("IncompatibleSchema", "injected"))
				} else {
					namespace := fmt.Sprintf("public/r-%08x", rand.Uint32())
					b.callREST("PUT", "namespaces/"+namespace, nil)
					b.callREST("PUT", "namespaces/"+namespace+"/schemaCompatibilityStrategy", "ALWAYS_COMPATIBLE")
					b.topic = "persistent://" + namespace + "/t"
				}
				b.send(schema, msg)
				in := b.subscribe(pulsar.ConsumerOptions{Topic: b.topic, Type: pulsar.Shared, Schema: orders2})
				r := b.reconsumer(reconsume.Options{Schema: orders2, DeadLetterTopic: topic, RetryLetterTopic: topic})
				received := b.receive(in)
				require.NoError(t, publish(r, received))
				got := b.receive(b.subscribe(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared}))
				require.Equal(t, received.Payload(), got.Payload())
				require.Empty(t, got.SchemaVersion())
				require.Equal(t, "0000000000000000", got.Properties()[reconsume.PropertyOriginSchemaVersion])
			})
		}
	}
}

// The schema of this message cannot be found, since the message is not pulsar-client-go's.
func TestMessageWhoseSchemaCannotBeFoundIsPublishedOutsideOfABatch(t *testing.T) {
	run(t, reconsume.Options{Schema: orders2}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		require.NoError(t, r.DeadLetter(bg, pulsar.ConsumerMessage{Consumer: acks, Message: message{}}, nil))
		require.Equal(t, "01", c.sent[deadLetters][0].Properties[reconsume.PropertyOriginSchemaVersion])
		require.False(t, c.sent[deadLetters][0].DeliverAt.IsZero(),
			"the message is in a batch, which has the consumer's version")
	})
}

func TestPropertyHasTheVersionIfTheConsumerHasNoSchema(t *testing.T) {
	b := newBroker(t)
	b.send(orders1, &pulsar.ProducerMessage{Value: order{A: "a"}})
	r := b.reconsumer(reconsume.Options{})
	next := b.receive(b.subscribe(pulsar.ConsumerOptions{Topic: b.topic, Type: pulsar.Shared}))
	for _, kind := range []string{"RETRY", "DLQ"} {
		want := next.Payload()
		out := b.subscribe(pulsar.ConsumerOptions{Topic: b.topic + "-sub-" + kind, Type: pulsar.Shared})
		require.NoError(t, publishes[kind](r, next))
		next = b.receive(out)
		require.Equal(t, want, next.Payload())
		require.Equal(t, "0000000000000000", next.Properties()[reconsume.PropertyOriginSchemaVersion], kind)
	}
}
