package suite

import (
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// What was asked for waits in upstream's queue behind 49 messages of 1.2 s each: nearly a minute.
func TestOneRequestIsEnoughForASlowApplication(t *testing.T) {
	testkit.TakesMinutes(t)
	t.Parallel()
	const n = 85
	testkit.Each(t, map[string]func(*redelivery.Consumer, pulsar.Message){
		"Nack":   (*redelivery.Consumer).Nack,
		"NackID": func(c *redelivery.Consumer, msg pulsar.Message) { c.NackID(msg.ID()) },
	}, func(t *testing.T, nack func(*redelivery.Consumer, pulsar.Message)) {
		t.Parallel()
		b := testkit.NewBroker(t)
		topic := b.NewTopic(0)
		b.Send(topic, n, false)
		opts := b.Options(topic, pulsar.Shared)
		opts.ReceiverQueueSize = 50
		c := b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(500*time.Millisecond))
		j, start, failed := testkit.NewJournal(), time.Now(), ""
		testkit.Drain(t, c, 5*time.Second, func(msg pulsar.Message) {
			j.Taken(msg)
			switch testkit.Name(msg) {
			case failed:
				t.Logf("again after %v", time.Since(start).Round(time.Second))
			default:
				if failed == "" {
					failed = testkit.Name(msg)
					nack(c, msg)
					return
				}
			}
			time.Sleep(1200 * time.Millisecond)
			require.NoError(t, c.Ack(msg))
			j.Done(msg)
		})
		j.Complete(t, n)
	})
}
