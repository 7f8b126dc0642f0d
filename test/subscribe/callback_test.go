package subscribe

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// interceptor calls the functions that are not nil.
type interceptor struct {
	testkit.Callbacks
	acked, nacked func(pulsar.Consumer, []pulsar.MessageID)
}

func (i interceptor) OnAcknowledge(c pulsar.Consumer, id pulsar.MessageID) {
	if i.acked != nil {
		i.acked(c, []pulsar.MessageID{id})
	}
}

func (i interceptor) OnNegativeAcksSend(c pulsar.Consumer, ids []pulsar.MessageID) {
	if i.nacked != nil {
		i.nacked(c, ids)
	}
}

// The interceptor acknowledges its message once more.
func TestAckInInterceptorReturns(t *testing.T) {
	t.Parallel()
	for name, settle := range map[string]func(*redelivery.Consumer, pulsar.Message) error{
		"Ack":       func(c *redelivery.Consumer, m pulsar.Message) error { return c.Ack(m) },
		"AckIDList": func(c *redelivery.Consumer, m pulsar.Message) error { return c.AckIDList([]pulsar.MessageID{m.ID()}) },
		"ReconsumeLater": func(c *redelivery.Consumer, m pulsar.Message) error {
			return c.ReconsumeLaterAfter(context.Background(), m, time.Hour, nil)
		},
	} {
		testkit.Each(t, map[string]bool{name: false, name + " with response": true}, func(t *testing.T, response bool) {
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			var calls atomic.Int32
			opts := b.Options(topic, pulsar.Shared)
			opts.RetryEnable, opts.AckWithResponse = true, response
			opts.Interceptors = pulsar.ConsumerInterceptors{interceptor{acked: func(c pulsar.Consumer, ids []pulsar.MessageID) {
				if calls.Add(1) == 1 {
					assert.NoError(t, c.AckID(ids[0]))
					assert.NoError(t, c.AckIDList(ids))
				}
			}}}
			c := b.Subscribe(opts)
			b.Send(topic, 1, false)
			msg := testkit.Receive(t, c)
			testkit.Returns(t, func() error { return settle(c, msg) })
			require.NotZero(t, calls.Load(), "the method returned before the interceptor was called")
			b.Settles(topic, 0)
		})
	}
}

// While a chunked message is being settled, upstream calls interceptors with the ids of its chunks.
func TestAckInInterceptorOfChunksReturns(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	var seen sync.Map
	var msg pulsar.Message
	opts := b.Options(topic, pulsar.Shared)
	opts.Interceptors = pulsar.ConsumerInterceptors{interceptor{acked: func(c pulsar.Consumer, ids []pulsar.MessageID) {
		if _, before := seen.LoadOrStore(ids[0].String(), true); !before {
			assert.NoError(t, c.AckID(ids[0]))
			assert.NoError(t, c.Ack(msg))
		}
	}}}
	c := b.Subscribe(opts)
	b.Publish(pulsar.ProducerOptions{Topic: topic, DisableBatching: true, EnableChunking: true,
		ChunkMaxMessageSize: 600},
		&pulsar.ProducerMessage{Payload: make([]byte, 2000)})
	msg = testkit.Receive(t, c)
	testkit.Returns(t, func() error { return c.Ack(msg) })
	b.Settles(topic, 0)
}

// ReconsumeLaterNext calls a policy, which settles the message.
func TestReconsumePolicyMayCallTheConsumer(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	var c *redelivery.Consumer
	var policy atomic.Value
	c = b.Subscribe(b.Options(topic, pulsar.Shared),
		redelivery.WithReconsumeBackoff(backoff.Func(func(uint32) time.Duration {
			if call, ok := policy.Load().(func()); ok {
				call()
			}
			return time.Hour
		})))
	b.Send(topic, 2, false)
	msg := testkit.Receive(t, c)
	var err error
	policy.Store(func() { assert.NoError(t, c.Ack(msg)) })
	testkit.Returns(t, func() error { err = c.ReconsumeLaterNext(context.Background(), msg); return nil })
	require.ErrorIs(t, err, redelivery.ErrNotInFlight)
	policy.Store(func() {})
	require.NoError(t, c.ReconsumeLaterNext(t.Context(), testkit.Receive(t, c)))
	b.Settles(topic, 0)
}

// The goroutine that feeds Chan calls the policy or interceptor, which closes the Consumer.
func TestCloseInPolicyOrInterceptorOfChanReturns(t *testing.T) {
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
