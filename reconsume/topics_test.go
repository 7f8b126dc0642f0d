package reconsume_test

import (
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/race"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// Whatever happens to the retry topic or the dead letter topic, the message is published and acknowledged, or the call
// returns an error.
func TestMessageIsPublishedOrTheCallReturnsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		before, during func(b *broker, topic string)
		err            string
	}{
		"plain":       {},
		"partitioned": {before: func(b *broker, topic string) { b.callREST("PUT", topic+"/partitions", 2) }},
		"more partitions": {before: func(b *broker, topic string) { b.callREST("PUT", topic+"/partitions", 1) },
			during: func(b *broker, topic string) { b.callREST("POST", topic+"/partitions", 3) }},
		"unloaded": {during: func(b *broker, topic string) { b.callREST("PUT", topic+"/unload", nil) }},
		"deleted":  {during: func(b *broker, topic string) { b.callREST("DELETE", topic+"?force=true", nil) }},
		"terminated": {during: func(b *broker, topic string) { b.callREST("POST", topic+"/terminate", nil) },
			err: "reconsume: "},
		"other schema": {before: func(b *broker, topic string) {
			b.subscribe(pulsar.ConsumerOptions{Topic: topic, Schema: pulsar.NewStringSchema(nil)}).Close()
			if b.inProcess != nil { // the broker in this process compares no schemas
				b.inProcess.Inject("PRODUCER", topic, 1, pulsartest.Fail("IncompatibleSchema", "injected"))
			}
		}}, // published without a schema, since the broker would refuse the schema at each later try, too
	} {
		for kind, publish := range map[string]func(*reconsume.Reconsumer, pulsar.ConsumerMessage) error{
			"RETRY": func(r *reconsume.Reconsumer, cm pulsar.ConsumerMessage) error {
				return r.LaterAfter(bg, cm, time.Second, nil)
			},
			"DLQ": func(r *reconsume.Reconsumer, cm pulsar.ConsumerMessage) error { return r.DeadLetter(bg, cm, nil) },
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				if c.during != nil && race.Enabled {
					t.Skip("a producer of pulsar-client-go that reconnects or closes itself races with its own sends")
				}
				b := newBroker(t)
				topic := b.topic + "-sub-" + kind
				if c.before != nil {
					c.before(b, topic)
				}
				r := b.reconsumer(reconsume.Options{Schema: orders2, OperationTimeout: 2 * time.Second})
				acks := &consumer{}
				if c.during != nil {
					require.NoError(t, publish(r, pulsar.ConsumerMessage{Consumer: acks, Message: unversioned{}}))
					c.during(b, topic)
				}
				before := acks.acked
				var reader pulsar.Consumer
				for range 3 {
					err := publish(r, pulsar.ConsumerMessage{Consumer: acks, Message: unversioned{}})
					if c.err != "" {
						require.ErrorContains(t, err, c.err)
						require.Equal(t, before, acks.acked)
						continue
					}
					require.NoError(t, err)
					before++
					require.Equal(t, before, acks.acked)
					if reader == nil {
						reader = b.subscribe(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared})
					}
					b.receive(reader)
				}
			})
		}
	}
}

type unversioned struct{ message }

func (unversioned) SchemaVersion() []byte { return nil }
