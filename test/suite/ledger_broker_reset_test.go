package suite

import (
	"fmt"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
)

// An operator moves the cursor back long after everything was acknowledged: all of it is to be handled again, however
// often it was redelivered before.
func TestOperatorsCursorReset(t *testing.T) {
	if testing.Short() {
		t.Skip("20 seconds")
	}
	t.Parallel()
	needsRealBroker(t, "cursor reset")
	const n = 20
	for kind := range kinds {
		for _, batched := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s batched=%t", kind, batched), func(t *testing.T) {
				t.Parallel()
				b := newBroker(t)
				topic := b.topic(0)
				before := time.Now().Add(-time.Second)
				b.send(topic, n, batched)
				c := b.subscribe(b.options(topic, kinds[kind]), redelivery.WithNackRedeliveryDelay(ms(200)))
				for round := range 2 {
					j, failed := newJournal(), map[string]bool{}
					drain(t, c, 2*time.Second, func(msg pulsar.Message) {
						j.taken(msg)
						if !failed[name(msg)] && len(failed) < n/2 {
							failed[name(msg)] = true
							c.Nack(msg)
							return
						}
						require.NoError(t, c.Ack(msg))
						j.done(msg)
					})
					t.Logf("round %d: %+v", round, c.Stats())
					j.complete(t, n)
					b.settles(topic, 0)
					if round == 0 {
						time.Sleep(10 * time.Second) // and two that nothing came
						b.rest("POST", topic, fmt.Sprintf("/subscription/%s/resetcursor/%d", sub, before.UnixMilli()), nil, nil)
					}
				}
			})
		}
	}
}

// What waits over an unload comes once more, on time, and counts on; what was acknowledged does not come.
func TestUnloadWhileMessagesWait(t *testing.T) {
	t.Parallel()
	const n, rounds, delay = 30, 3, 2 * time.Second
	fail := func(c *redelivery.Consumer, way string, msg pulsar.Message) {
		switch way {
		case "Nack":
			c.Nack(msg)
		case "NackID":
			c.NackID(msg.ID())
		default:
			_ = c.InProgress(msg) // its clock starts now
		}
	}
	for way, option := range waysToFail(delay) {
		for kind := range kinds {
			for _, batched := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s batched=%t", way, kind, batched), func(t *testing.T) {
					t.Parallel()
					b := newBroker(t)
					// A copy's acknowledgement that an unload leaves without an answer keeps upstream from reconnecting
					// for that long.
					b.connect(pulsar.ClientOptions{OperationTimeout: 5 * time.Second})
					topic := b.topic(0)
					b.send(topic, n, batched)
					opts := b.options(topic, kinds[kind])
					opts.AckWithResponse = true
					c := b.subscribe(opts, option)
					due, last, acked := map[string]time.Time{}, map[string]pulsar.Message{}, map[string]bool{}
					for round := range uint32(rounds) {
						seen := map[string]bool{}
						for len(seen) < n-len(acked) {
							msg := receive(t, c)
							now, which := time.Now(), name(msg)
							require.False(t, acked[which], "%s came after its Ack had returned nil", which)
							require.False(t, seen[which], "%s came twice", which)
							require.False(t, now.Before(due[which]), "%s is early by %v", which, due[which].Sub(now))
							require.Equal(t, round, c.RedeliveryCount(msg), which)
							seen[which], last[which], due[which] = true, msg, now.Add(delay)
							fail(c, way, msg)
						}
						for which := range seen { // a third is acknowledged after all
							if len(acked) < n/rounds*int(round+1) {
								b.acks(c, last[which])
								acked[which] = true
							}
						}
						b.unload(topic)
					}
					nothing(t, c, delay+time.Second)
					b.settles(topic, 0)
				})
			}
		}
	}
}

// acks acknowledges a message at a broker that was just unloading its topic: a busy one may leave an acknowledgement
// without an answer.
func (b *broker) acks(c *redelivery.Consumer, msg pulsar.Message) {
	b.t.Helper()
	err := c.Ack(msg)
	for tries := 0; err != nil && tries < 2; tries++ {
		b.t.Logf("Ack of %s: %v", name(msg), err)
		err = c.Ack(msg)
	}
	require.NoError(b.t, err)
}
