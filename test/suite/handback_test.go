package suite

import (
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// The ack timeout of one message does not have the broker send all others again, of which the application has copies.
func TestAnAckTimeoutDoesNotRewind(t *testing.T) {
	t.Parallel()
	const n = 100
	testkit.Each(t, map[string]bool{"batched": true, "single": false}, func(t *testing.T, batched bool) {
		for _, kind := range []string{"Exclusive", "Failover"} {
			t.Run(kind, func(t *testing.T) {
				t.Parallel()
				b := testkit.NewBroker(t)
				topic := b.NewTopic(0)
				b.Send(topic, n, batched)
				c := b.Subscribe(b.Options(topic, testkit.SubscriptionTypes[kind]), redelivery.WithAckTimeout(2*time.Second))
				var msgs []pulsar.Message
				for range n {
					msgs = append(msgs, testkit.Receive(t, c))
				}
				stop := make(chan struct{})
				stopped := make(chan struct{})
				go func() {
					defer close(stopped)
					for {
						for _, msg := range msgs[1:] {
							_ = c.InProgress(msg)
						}
						select {
						case <-time.After(200 * time.Millisecond):
						case <-stop:
							return
						}
					}
				}()
				defer func() { close(stop); <-stopped }()
				again := testkit.Receive(t, c)
				require.Equal(t, msgs[0].Payload(), again.Payload())
				require.NoError(t, c.Ack(again))
				testkit.ReceiveNothing(t, c, 500*time.Millisecond)
				s := c.Stats()
				require.Zero(t, s.Buffered+s.Dropped+s.Swallowed, "%+v", s)
				require.Equal(t, n, b.Stats(topic, 0).Out, "what the broker has sent")
			})
		}
	})
}
