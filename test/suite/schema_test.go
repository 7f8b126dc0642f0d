package suite

import (
	"errors"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
)

const record = `{"type":"record","name":"R","namespace":"n","fields":[{"name":"a","type":"string"}`

// A consumer with one version of an Avro schema retries and gives up messages of another one, and damaged ones. Java
// reads them.
func TestOtherVersionsOfASchema(t *testing.T) {
	t.Parallel()
	older := pulsar.NewAvroSchema(record+"]}", nil)
	newer := pulsar.NewAvroSchema(record+`,{"name":"b","type":"string","default":"none"}]}`, nil)
	type value struct {
		A string `avro:"a"`
		B string `avro:"b"`
	}
	b := newBroker(t)
	topic := b.topic(0)
	send := func(schema pulsar.Schema, msg *pulsar.ProducerMessage) {
		msg.Properties = map[string]string{"name": msg.Key}
		b.publish(pulsar.ProducerOptions{Topic: topic, Schema: schema}, msg)
	}
	send(older, &pulsar.ProducerMessage{Key: "older", Value: value{A: "x"}})
	send(newer, &pulsar.ProducerMessage{Key: "newer", Value: value{A: "x", B: "y"}})
	send(older, &pulsar.ProducerMessage{Key: "damaged", Payload: []byte{99}})
	opts := b.retrying(topic, 5)
	opts.Schema = newer
	c := b.subscribe(opts)
	check := func(msg pulsar.Message) {
		var v value
		if msg.Key() == "damaged" {
			require.Equal(t, []byte{99}, msg.Payload())
			return
		}
		require.NoError(t, msg.GetSchemaValue(&v), msg.Key())
		require.Equal(t, map[string]string{"older": "", "newer": "y"}[msg.Key()], v.B)
	}
	due := map[string]time.Time{}
	for range 3 {
		msg := receive(t, c)
		check(msg)
		due[msg.Key()] = time.Now().Add(2 * time.Second)
		require.NoError(t, c.ReconsumeLaterAfter(bg, msg, 2*time.Second, nil, redelivery.WithCause(errors.New("cannot read it"))))
	}
	for range 3 {
		msg := next(t, c, 10*time.Second)
		require.False(t, time.Now().Before(due[msg.Key()]), "%s is early", msg.Key())
		check(msg)
		require.NoError(t, c.DeadLetter(bg, msg, errors.New("cannot read it")))
	}
	b.settles(topic, 0)
	dead := deadLetterTopic(topic)
	letters, err := b.client.Subscribe(pulsar.ConsumerOptions{Topic: dead, SubscriptionName: "go", Schema: newer,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
	require.NoError(t, err)
	defer letters.Close()
	for range 3 {
		check(next(t, letters, 10*time.Second))
	}
	if b.inProcess != nil {
		return
	}
	said := b.java()("Schemas", dead, "java", "3")
	require.Contains(t, said, "older: a=x\n")
	require.Contains(t, said, "newer: a=x b=y\n")
	require.Contains(t, said, "damaged: damaged\n")
}
