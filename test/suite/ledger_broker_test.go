package suite

import (
	"fmt"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
)

// A rewind sends again what upstream's queue still holds, and a slow application meets the copies long after its own
// acknowledgements.
func TestRewindSparesWhatASlowApplicationAcknowledged(t *testing.T) {
	t.Parallel()
	const n = 300
	delay := ms(300)
	for way, option := range waysToFail(delay) {
		for _, kind := range []string{"Exclusive", "Failover"} {
			for _, response := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s AckWithResponse=%t", kind, way, response), func(t *testing.T) {
					t.Parallel()
					b := newBroker(t)
					topic := b.topic(0)
					b.send(topic, n, false)
					opts := b.options(topic, kinds[kind])
					opts.AckWithResponse = response
					c := b.subscribe(opts, option)
					j, failed := newJournal(), false
					drain(t, c, 2*time.Second, func(msg pulsar.Message) {
						j.taken(msg)
						if !failed {
							failed = true
							switch way {
							case "Nack":
								c.Nack(msg)
							case "NackID":
								c.NackID(msg.ID())
							}
							return
						}
						time.Sleep(ms(8))
						require.NoError(t, c.Ack(msg))
						j.done(msg)
					})
					t.Logf("%+v", c.Stats())
					j.complete(t, n)
					b.settles(topic, 0)
				})
			}
		}
	}
}

// What was asked for waits in upstream's queue behind 49 messages of 1.2 s each: nearly a minute.
func TestOneRequestIsEnoughForASlowApplication(t *testing.T) {
	takesMinutes(t)
	t.Parallel()
	const n = 85
	each(t, map[string]func(*redelivery.Consumer, pulsar.Message){
		"Nack":   (*redelivery.Consumer).Nack,
		"NackID": func(c *redelivery.Consumer, msg pulsar.Message) { c.NackID(msg.ID()) },
	}, func(t *testing.T, nack func(*redelivery.Consumer, pulsar.Message)) {
		t.Parallel()
		b := newBroker(t)
		topic := b.topic(0)
		b.send(topic, n, false)
		opts := b.options(topic, pulsar.Shared)
		opts.ReceiverQueueSize = 50
		c := b.subscribe(opts, redelivery.WithNackRedeliveryDelay(ms(500)))
		j, start, failed := newJournal(), time.Now(), ""
		drain(t, c, 5*time.Second, func(msg pulsar.Message) {
			j.taken(msg)
			switch name(msg) {
			case failed:
				t.Logf("again after %v", time.Since(start).Round(time.Second))
			default:
				if failed == "" {
					failed = name(msg)
					nack(c, msg)
					return
				}
			}
			time.Sleep(ms(1200))
			require.NoError(t, c.Ack(msg))
			j.done(msg)
		})
		j.complete(t, n)
	})
}

// What the MessageChannel holds while the consumer reconnects is acknowledged afterwards, when the broker has sent it
// again.
func TestReconnectSparesWhatTheMessageChannelHeld(t *testing.T) {
	t.Parallel()
	const n = 60
	for kind := range kinds {
		for _, batched := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s batched=%t", kind, batched), func(t *testing.T) {
				t.Parallel()
				b := newBroker(t)
				topic := b.topic(0)
				b.send(topic, n, batched)
				opts := b.options(topic, kinds[kind])
				opts.AckWithResponse = true
				c := b.subscribe(opts)
				j, taken := newJournal(), 0
				drain(t, c, 3*time.Second, func(msg pulsar.Message) {
					j.taken(msg)
					taken++
					if taken == 20 {
						b.unload(topic)
						time.Sleep(time.Second) // it has reconnected, and has its queue again
					}
					time.Sleep(ms(20))
					require.NoError(t, c.Ack(msg))
					j.done(msg)
				})
				j.complete(t, n)
				b.settles(topic, 0)
			})
		}
	}
}
