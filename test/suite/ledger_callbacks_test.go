package suite

import (
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

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
