package suite

import (
	"fmt"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// An operator moves the cursor back long after everything was acknowledged: all of it is to be handled again, however
// often it was redelivered before.
func TestOperatorsCursorReset(t *testing.T) {
	if testing.Short() {
		t.Skip("20 seconds")
	}
	t.Parallel()
	testkit.NeedsRealBroker(t, "cursor reset")
	const n = 20
	for kind := range testkit.SubscriptionTypes {
		for _, batched := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s batched=%t", kind, batched), func(t *testing.T) {
				t.Parallel()
				b := testkit.NewBroker(t)
				topic := b.NewTopic(0)
				before := time.Now().Add(-time.Second)
				b.Send(topic, n, batched)
				c := b.Subscribe(b.Options(topic, testkit.SubscriptionTypes[kind]), redelivery.WithNackRedeliveryDelay(200*time.Millisecond))
				for round := range 2 {
					j, failed := testkit.NewJournal(), map[string]bool{}
					testkit.Drain(t, c, 2*time.Second, func(msg pulsar.Message) {
						j.Taken(msg)
						if !failed[testkit.Name(msg)] && len(failed) < n/2 {
							failed[testkit.Name(msg)] = true
							c.Nack(msg)
							return
						}
						require.NoError(t, c.Ack(msg))
						j.Done(msg)
					})
					t.Logf("round %d: %+v", round, c.Stats())
					j.Complete(t, n)
					b.Settles(topic, 0)
					if round == 0 {
						time.Sleep(10 * time.Second) // and two that nothing came
						b.Admin("POST", topic, fmt.Sprintf("/subscription/%s/resetcursor/%d", testkit.Subscription, before.UnixMilli()), nil, nil)
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
	for way, option := range testkit.WaysToFail(delay) {
		for kind := range testkit.SubscriptionTypes {
			for _, batched := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s batched=%t", way, kind, batched), func(t *testing.T) {
					t.Parallel()
					b := testkit.NewBroker(t)
					// A copy's acknowledgement that an unload leaves without an answer keeps upstream from reconnecting
					// for that long.
					b.Connect(pulsar.ClientOptions{OperationTimeout: 5 * time.Second})
					topic := b.NewTopic(0)
					b.Send(topic, n, batched)
					opts := b.Options(topic, testkit.SubscriptionTypes[kind])
					opts.AckWithResponse = true
					c := b.Subscribe(opts, option)
					due, last, acked := map[string]time.Time{}, map[string]pulsar.Message{}, map[string]bool{}
					for round := range uint32(rounds) {
						seen := map[string]bool{}
						for len(seen) < n-len(acked) {
							msg := testkit.Receive(t, c)
							now, which := time.Now(), testkit.Name(msg)
							require.False(t, acked[which], "%s came after its Ack had returned nil", which)
							require.False(t, seen[which], "%s came twice", which)
							require.False(t, now.Before(due[which]), "%s is early by %v", which, due[which].Sub(now))
							require.Equal(t, round, c.RedeliveryCount(msg), which)
							seen[which], last[which], due[which] = true, msg, now.Add(delay)
							fail(c, way, msg)
						}
						for which := range seen { // a third is acknowledged after all
							if len(acked) < n/rounds*int(round+1) {
								acks(b, c, last[which])
								acked[which] = true
							}
						}
						b.Unload(topic)
					}
					testkit.ReceiveNothing(t, c, delay+time.Second)
					b.Settles(topic, 0)
				})
			}
		}
	}
}

// acks acknowledges a message at a broker that was just unloading its topic: a busy one may leave an acknowledgement
// without an answer.
func acks(b *testkit.Broker, c *redelivery.Consumer, msg pulsar.Message) {
	b.T.Helper()
	err := c.Ack(msg)
	for tries := 0; err != nil && tries < 2; tries++ {
		b.T.Logf("Ack of %s: %v", testkit.Name(msg), err)
		err = c.Ack(msg)
	}
	require.NoError(b.T, err)
}
