package suite

import (
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// What this library needs of pulsar-client-go beyond what that promises. When one of these fails after an update, the
// way that the inner consumer is driven has to be thought over: see consumerOptions.

type flushes chan time.Time

func (f flushes) BeforeConsume(pulsar.ConsumerMessage)                       {}
func (f flushes) OnAcknowledge(pulsar.Consumer, pulsar.MessageID)            {}
func (f flushes) OnNegativeAcksSend(_ pulsar.Consumer, _ []pulsar.MessageID) { f <- time.Now() }

func TestUpstreamSendsRequestsAtItsNextTick(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	opts, err := testkit.PreparedOptions(b.Options(topic, pulsar.Shared), redelivery.WithRedeliveryResolution(2*time.Second))
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
		require.Less(t, (<-flushed).Sub(asked), 4*time.Second, "a tick is a third of NackRedeliveryDelay")
	}
}

func TestUpstreamReturnsTheChannelItGot(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	opts, err := testkit.PreparedOptions(b.Options(b.NewTopic(0), pulsar.Shared))
	require.NoError(t, err)
	inner, err := b.Client.Subscribe(opts)
	require.NoError(t, err)
	defer inner.Close()
	require.Equal(t, (<-chan pulsar.ConsumerMessage)(opts.MessageChannel), inner.Chan(), "it is how SubscribeWith knows its consumer")
}
