package suite

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// Whatever the feeder of Chan calls may close the Consumer.
func TestCloseFromWhatTheFeederCalls(t *testing.T) {
	for name, subscribe := range map[string]func(close func()) (pulsar.ConsumerOptions, []redelivery.Option){
		"policy": func(close func()) (pulsar.ConsumerOptions, []redelivery.Option) {
			return pulsar.ConsumerOptions{}, []redelivery.Option{redelivery.WithAckTimeout(time.Minute),
				redelivery.WithAckTimeoutRedeliveryBackoff(backoff.Func(func(uint32) time.Duration { close(); return 0 }))}
		},
		"interceptor": func(close func()) (pulsar.ConsumerOptions, []redelivery.Option) {
			return pulsar.ConsumerOptions{Interceptors: pulsar.ConsumerInterceptors{testkit.Callbacks{Before: close}}}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			var c *redelivery.Consumer
			closed := make(chan struct{})
			opts, options := subscribe(func() {
				c.Close()
				close(closed)
			})
			c, s := testkit.NewStandIn(t, opts, options...)
			s.Publish(testkit.Entries(1)...)
			select {
			case <-c.Chan():
			case <-closed:
			case <-time.After(10 * time.Second):
			}
			testkit.Returns(t, func() error { <-closed; return nil })
		})
	}
}

// What was acknowledged twelve seconds ago is new to the application's operator, who moved the cursor back.
func TestOperatorsCursorResetInVirtualTime(t *testing.T) {
	for which, kind := range testkit.SubscriptionTypes {
		t.Run(which, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 20
				c, s := testkit.NewStandIn(t, pulsar.ConsumerOptions{Type: kind}, redelivery.WithNackRedeliveryDelay(100*time.Millisecond))
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
