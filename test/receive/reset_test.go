package receive

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// An operator moves the cursor back long after all messages were acknowledged. How often they were redelivered before
// does not matter.
func TestCursorResetRedeliversAll(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 20 seconds")
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
				c := b.Subscribe(b.Options(topic, testkit.SubscriptionTypes[kind]),
					redelivery.WithNackRedeliveryDelay(200*time.Millisecond))
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
						time.Sleep(10 * time.Second) // after the two seconds of Drain
						b.Admin("POST", topic, fmt.Sprintf("/subscription/%s/resetcursor/%d", testkit.Subscription,
							before.UnixMilli()), nil, nil)
					}
				}
			})
		}
	}
}

// The messages were acknowledged twelve seconds before an operator moves the cursor back.
func TestCursorResetInVirtualTimeRedeliversAll(t *testing.T) {
	for which, kind := range testkit.SubscriptionTypes {
		t.Run(which, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 20
				c, s := testkit.NewStandIn(t, pulsar.ConsumerOptions{Type: kind},
					redelivery.WithNackRedeliveryDelay(100*time.Millisecond))
				s.Publish(testkit.Entries(testkit.Numbers(n)...)...)
				for round := range 2 {
					failed := map[string]bool{}
					acked := map[string]int{}
					testkit.Drain(t, c, 12*time.Second, func(msg pulsar.Message) {
						if !failed[testkit.Name(msg)] && len(failed) < n/2 {
							failed[testkit.Name(msg)] = true
							c.Nack(msg)
							return
						}
						require.NoError(t, c.Ack(msg))
						acked[testkit.Name(msg)]++
					})
					require.Len(t, acked, n, "round %d", round)
					s.Reset()
				}
			})
		})
	}
}
