package subscribe

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// calledOnce is an interceptor that calls the function call at the first call of one of its methods.
type calledOnce struct {
	in     string // the name of the method
	call   func(pulsar.Consumer)
	called atomic.Bool
}

func (x *calledOnce) onCall(method string, c pulsar.Consumer) {
	if method == x.in && !x.called.Swap(true) {
		x.call(c)
	}
}

func (x *calledOnce) BeforeConsume(cm pulsar.ConsumerMessage) { x.onCall("BeforeConsume", cm.Consumer) }
func (x *calledOnce) OnAcknowledge(c pulsar.Consumer, _ pulsar.MessageID) {
	x.onCall("OnAcknowledge", c)
}
func (x *calledOnce) OnNegativeAcksSend(c pulsar.Consumer, _ []pulsar.MessageID) {
	x.onCall("OnNegativeAcksSend", c)
}
func (x *calledOnce) OnConsumerClose(c pulsar.Consumer, _ error) { x.onCall("OnConsumerClose", c) }

// OnAcknowledge, OnNegativeAcksSend and OnConsumerClose of an interceptor get the Consumer, and may close it. As with a
// plain consumer, BeforeConsume must not close it, since Close of pulsar-client-go waits for the goroutines that call
// BeforeConsume.
func TestCloseInInterceptorReturns(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"OnAcknowledge", "OnNegativeAcksSend", "OnConsumerClose"} {
		testkit.Each(t, testkit.SubscriptionTypes, func(t *testing.T, kind pulsar.SubscriptionType) {
			t.Run(method, func(t *testing.T) {
				t.Parallel()
				b := testkit.NewBroker(t)
				topic := b.NewTopic(0)
				opts, closed := b.Options(topic, kind), make(chan struct{})
				opts.Interceptors = pulsar.ConsumerInterceptors{&calledOnce{in: method, call: func(c pulsar.Consumer) {
					c.Close()
					close(closed)
				}}}
				c := b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(20*time.Millisecond), testkit.FromBroker)
				b.Send(topic, 2, false)
				for n := range 4 { // Receive fails after OnAcknowledge or OnNegativeAcksSend closed the Consumer
					msg, err := testkit.ReceiveWithin(c, testkit.Patience)
					if err != nil {
						break
					}
					if n%2 == 0 {
						c.Nack(msg)
					} else {
						_ = c.Ack(msg)
					}
				}
				testkit.Returns(t, func() error { c.Close(); return nil })
				testkit.Returns(t, func() error { <-closed; return nil })
			})
		})
	}
}

// The interceptor is called for one message of AckIDList, and acknowledges all of them.
func TestInterceptorOfAckIDListMayAckTheOthers(t *testing.T) {
	t.Parallel()
	for _, topics := range []int{1, 2} {
		t.Run(fmt.Sprint(topics), func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBroker(t)
			opts := b.Options("", pulsar.Shared)
			var ids []pulsar.MessageID
			opts.Interceptors = pulsar.ConsumerInterceptors{&calledOnce{in: "OnAcknowledge",
				call: func(c pulsar.Consumer) {
					assert.NoError(t, c.AckIDList(ids))
				}}}
			for range topics {
				opts.Topics = append(opts.Topics, b.NewTopic(0))
			}
			c := b.Subscribe(opts)
			for _, topic := range opts.Topics {
				b.Send(topic, 2, false)
			}
			for range 2 * topics {
				ids = append(ids, testkit.Receive(t, c).ID())
			}
			testkit.Returns(t, func() error { return c.AckIDList(ids) })
			for _, topic := range opts.Topics {
				b.Settles(topic, 0)
			}
		})
	}
}

// The interceptor never returns, and blocks a goroutine of pulsar-client-go. Methods and observers still work.
func TestBlockedInterceptorDelaysNoMethod(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	block := make(chan struct{})
	opts := b.Options(topic, pulsar.Shared)
	opts.RetryEnable = true
	opts.Interceptors = pulsar.ConsumerInterceptors{&calledOnce{in: "OnNegativeAcksSend",
		call: func(pulsar.Consumer) { <-block }}}
	outcomes := make(chan redelivery.Outcome, 10)
	c := b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(20*time.Millisecond),
		redelivery.WithAckTimeout(2*time.Second), testkit.FromBroker,
		redelivery.WithObserver(redelivery.Observer{Settled: func(s redelivery.Settled) { outcomes <- s.Outcome }}))
	t.Cleanup(func() { close(block) }) // runs before Close
	b.Send(topic, 4, false)
	c.Nack(testkit.Receive(t, c))
	require.Equal(t, redelivery.Nacked, waittest.Next(t, outcomes))
	time.Sleep(300 * time.Millisecond) // until the interceptor blocks
	msg := testkit.Receive(t, c)
	testkit.Returns(t, func() error { return c.ReconsumeLaterAfter(context.Background(), msg, time.Hour, nil) })
	require.Equal(t, redelivery.Reconsumed, waittest.Next(t, outcomes))
	msg = testkit.Receive(t, c)
	testkit.Returns(t, func() error { return c.Ack(msg) })
	require.Equal(t, redelivery.Acked, waittest.Next(t, outcomes))
	testkit.Receive(t, c)
	require.Equal(t, redelivery.TimedOut, waittest.Next(t, outcomes))
}
