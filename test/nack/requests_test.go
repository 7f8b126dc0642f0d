package nack

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// The application needs a minute until it reaches the answer to the request.
func TestRequestOfSlowApplicationIsNotRepeated(t *testing.T) {
	for how, nack := range map[string]func(*redelivery.Consumer, pulsar.Message){
		"Nack":   (*redelivery.Consumer).Nack,
		"NackID": func(c *redelivery.Consumer, msg pulsar.Message) { c.NackID(msg.ID()) },
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 300
				c, s := testkit.NewStandIn(t, pulsar.ConsumerOptions{Type: pulsar.Shared},
					redelivery.WithNackRedeliveryDelay(500*time.Millisecond))
				s.Window = 50
				s.Publish(testkit.Entries(testkit.Numbers(n)...)...)
				j, failed := testkit.NewJournal(), false
				testkit.Drain(t, c, time.Minute, func(msg pulsar.Message) {
					j.Taken(msg)
					if !failed {
						failed = true
						nack(c, msg)
						return
					}
					time.Sleep(1200 * time.Millisecond)
					require.NoError(t, c.Ack(msg))
					j.Done(msg)
				})
				j.Complete(t, n)
			})
		})
	}
}

// The broker does not send an acknowledged message again. A request for it would make the broker send all other
// messages again.
func TestNackAfterAckRequestsAtMostOnce(t *testing.T) {
	for how, nack := range map[string]func(*redelivery.Consumer, pulsar.Message){
		"Nack":   (*redelivery.Consumer).Nack,
		"NackID": func(c *redelivery.Consumer, msg pulsar.Message) { c.NackID(msg.ID()) },
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := testkit.NewStandIn(t, pulsar.ConsumerOptions{Type: pulsar.Exclusive},
					redelivery.WithNackRedeliveryDelay(100*time.Millisecond))
				s.Publish(testkit.Entries(1, 2)...)
				msg, other := testkit.Receive(t, c), testkit.Receive(t, c)
				require.NoError(t, c.Ack(msg))
				time.Sleep(time.Minute)
				s.Publish(testkit.Entries(3)...)
				require.NoError(t, c.Ack(testkit.Receive(t, c)))
				nack(c, msg)
				again := receiveTen(t, c, 10*time.Minute)
				t.Logf("%d requests in ten minutes", s.Requests)
				require.LessOrEqual(t, s.Requests, 1)
				require.Empty(t, again, "messages came after Ack had returned nil, or came twice")
				require.NoError(t, c.Ack(other))
			})
		})
	}
}

// flushes is an interceptor for a test of undocumented behavior of pulsar-client-go. If that test fails after an
// update, reconsider how the Consumer requests messages.

type flushes chan time.Time

func (f flushes) BeforeConsume(pulsar.ConsumerMessage)                       {}
func (f flushes) OnAcknowledge(pulsar.Consumer, pulsar.MessageID)            {}
func (f flushes) OnNegativeAcksSend(_ pulsar.Consumer, _ []pulsar.MessageID) { f <- time.Now() }

func TestUpstreamSendsRequestsAtItsNextTick(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	opts, err := testkit.PreparedOptions(b.Options(topic, pulsar.Shared),
		redelivery.WithRedeliveryResolution(2*time.Second))
	require.NoError(t, err)
	flushed := make(flushes, 10)
	opts.Interceptors = pulsar.ConsumerInterceptors{flushed}
	inner, err := b.Client.Subscribe(opts)
	require.NoError(t, err)
	defer inner.Close()
	b.Send(topic, 1, false)
	for range 2 {
		cm := waittest.Next(t, inner.Chan())
		asked := time.Now()
		cm.Consumer.NackID(cm.ID())
		require.Less(t, (<-flushed).Sub(asked), 4*time.Second, "the request was not sent at the next tick")
	}
}

// receiveTen returns the names of up to ten messages that come within d.
func receiveTen(t *testing.T, c *redelivery.Consumer, d time.Duration) (names []string) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	for range 10 {
		msg, err := c.Receive(ctx)
		if err != nil {
			break
		}
		names = append(names, testkit.Name(msg))
		require.NoError(t, c.Ack(msg))
	}
	return names
}
