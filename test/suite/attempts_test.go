package suite

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
)

// A message that failed is neither early nor counted anew for the next consumer of the subscription, on every subscription type, in a batch
// too, and its last delivery makes it a dead letter.
func TestAttemptsOutliveTheConsumer(t *testing.T) {
	t.Parallel()
	for kind := range kinds {
		for _, batched := range []bool{false, true} {
			for _, chans := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, batched %t, by channel %t", kind, batched, chans), func(t *testing.T) {
					t.Parallel()
					b := newBroker(t)
					topic := b.topic(0)
					dead := b.deadLetters(topic)
					opts := b.options(topic, kinds[kind])
					subscribe := func() *redelivery.Consumer {
						return b.subscribe(opts, redelivery.WithAttemptLog(redelivery.AttemptLog{}), redelivery.WithNackRedeliveryDelay(2*time.Second),
							redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 3}))
					}
					c := subscribe()
					b.send(topic, 4, batched)
					due := map[string]time.Time{}
					for count := range uint32(3) {
						for range 4 {
							ctx, cancel := context.WithTimeout(bg, 15*time.Second)
							msg, err := takeBy(ctx, c, chans)
							cancel()
							require.NoError(t, err)
							require.Equal(t, count, msg.RedeliveryCount(), "%s", msg.Payload())
							require.False(t, time.Now().Before(due[string(msg.Payload())]), "%s is early", msg.Payload())
							due[string(msg.Payload())] = time.Now().Add(2 * time.Second)
							require.NoError(t, c.NackWithReason(msg, errors.New("no coffee")))
						}
						if count < 2 {
							require.Eventually(t, func() bool { return c.AttemptLog().Stats().Lag == 0 }, 5*time.Second, ms(5))
							c.Close()
							c = subscribe()
						}
					}
					for range 4 {
						msg := next(t, dead, 15*time.Second)
						require.Equal(t, "no coffee", msg.Properties()["EXCEPTION_MESSAGE"])
					}
					require.Eventually(t, func() bool { return c.AttemptLog().Stats().Records == 0 }, 15*time.Second, ms(20))
				})
			}
		}
	}
}
