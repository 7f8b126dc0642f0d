package retry

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

const record = `{"type":"record","name":"R","namespace":"n","fields":[{"name":"a","type":"string"}`

// The consumer has one version of an Avro schema, and its messages have another version or are damaged. Java reads the
// dead letters.
func TestRetriesKeepOtherSchemaVersions(t *testing.T) {
	t.Parallel()
	older := pulsar.NewAvroSchema(record+"]}", nil)
	newer := pulsar.NewAvroSchema(record+`,{"name":"b","type":"string","default":"none"}]}`, nil)
	type value struct {
		A string `avro:"a"`
		B string `avro:"b"`
	}
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	send := func(schema pulsar.Schema, msg *pulsar.ProducerMessage) {
		msg.Properties = map[string]string{"name": msg.Key}
		b.Publish(pulsar.ProducerOptions{Topic: topic, Schema: schema}, msg)
	}
	send(older, &pulsar.ProducerMessage{Key: "older", Value: value{A: "x"}})
	send(newer, &pulsar.ProducerMessage{Key: "newer", Value: value{A: "x", B: "y"}})
	send(older, &pulsar.ProducerMessage{Key: "damaged", Payload: []byte{99}})
	opts := b.RetryOptions(topic, 5)
	opts.Schema = newer
	c := b.Subscribe(opts)
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
		msg := testkit.Receive(t, c)
		check(msg)
		due[msg.Key()] = time.Now().Add(2 * time.Second)
		require.NoError(t, c.ReconsumeLaterAfter(context.Background(), msg, 2*time.Second, nil,
			redelivery.WithCause(errors.New("cannot read it"))))
	}
	for range 3 {
		msg := testkit.Next(t, c, 10*time.Second)
		require.False(t, time.Now().Before(due[msg.Key()]), "%s is early", msg.Key())
		check(msg)
		require.NoError(t, c.DeadLetter(context.Background(), msg, errors.New("cannot read it")))
	}
	b.Settles(topic, 0)
	dead := testkit.DeadLetterTopic(topic)
	letters, err := b.Client.Subscribe(pulsar.ConsumerOptions{Topic: dead, SubscriptionName: "go", Schema: newer,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
	require.NoError(t, err)
	defer letters.Close()
	for range 3 {
		check(testkit.Next(t, letters, 10*time.Second))
	}
	if b.InProcess != nil {
		return
	}
	said := java(b)("Schemas", dead, "java", "3")
	require.Contains(t, said, "older: a=x\n")
	require.Contains(t, said, "newer: a=x b=y\n")
	require.Contains(t, said, "damaged: damaged\n")
}
