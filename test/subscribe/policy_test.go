package subscribe

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// The Consumer asks the policy for a delay at a message's last delivery, too: in Receive, in the goroutine that feeds
// Chan, or at an ack timeout.
func TestPolicyMayCallTheConsumer(t *testing.T) {
	t.Parallel()
	seek := func(c *redelivery.Consumer) { _ = c.SeekByTime(time.Now().Add(-time.Hour)) }
	for name, test := range map[string]struct {
		call   func(*redelivery.Consumer)
		chanOf bool // the application uses Chan
		// if not 0, the last delivery times out; otherwise it is nacked by id, and the message becomes a dead letter
		// when it comes again
		timeout time.Duration
	}{
		"Close, by Receive":     {call: (*redelivery.Consumer).Close},
		"Close, by Chan":        {call: (*redelivery.Consumer).Close, chanOf: true},
		"Close, by ack timeout": {call: (*redelivery.Consumer).Close, timeout: 200 * time.Millisecond},
		"Seek, by Receive":      {call: seek},
		"Seek, by Chan":         {call: seek, chanOf: true},
		"Seek, by ack timeout":  {call: seek, timeout: 200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			opts := b.Options(topic, pulsar.Shared)
			opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 1}
			called := make(chan struct{}, 10)
			var c *redelivery.Consumer
			options := []redelivery.Option{redelivery.WithNackRedeliveryBackoff(backoff.Func(func(count uint32) time.Duration {
				if count > 0 || test.timeout > 0 {
					test.call(c)
					called <- struct{}{}
				}
				return 10 * time.Millisecond
			}))}
			if test.timeout > 0 {
				options = append(options, redelivery.WithAckTimeout(test.timeout))
			} else {
				options = append(options, redelivery.WithMemoryLimit(0)) // otherwise the message would become a dead letter at once
			}
			c = b.Subscribe(opts, options...)
			b.Send(topic, 1, false)
			go func() {
				for {
					msg, err := testkit.Take(t.Context(), c, test.chanOf)
					if err != nil {
						return
					}
					if test.timeout == 0 {
						c.NackID(msg.ID())
					}
				}
			}()
			select {
			case <-called:
			case <-time.After(10 * time.Second):
				require.FailNow(t, "the policy's call hangs")
			}
		})
	}
}

// closing is an interceptor that calls a function in OnConsumerClose.
type closing struct {
	testkit.Callbacks
	call func(pulsar.Consumer)
}

func (x closing) OnConsumerClose(c pulsar.Consumer, _ error) { x.call(c) }

// Later calls of Close and Receive return, too.
func TestOnConsumerCloseMayCallTheConsumer(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(pulsar.Consumer){
		"receives": func(c pulsar.Consumer) { _, _ = c.Receive(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBroker(t)
			opts := b.Options(b.NewTopic(0), pulsar.Shared)
			opts.Interceptors = pulsar.ConsumerInterceptors{closing{call: call}}
			var calls atomic.Int32
			c := b.Subscribe(opts, redelivery.WithAttemptLog(redelivery.AttemptLog{}),
				redelivery.WithObserver(redelivery.Observer{
					Closed: func(*redelivery.Consumer) { calls.Add(1) },
				}))
			testkit.Returns(t, func() error {
				defer func() { _ = recover() }()
				c.Close()
				return nil
			})
			testkit.Returns(t, func() error { c.Close(); return nil })
			require.EqualValues(t, 1, calls.Load())
			testkit.Returns(t, func() error {
				_, err := c.Receive(context.Background())
				require.Error(t, err)
				return nil
			})
		})
	}
}
