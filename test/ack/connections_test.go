package ack

import (
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// The consumer of the message's topic closes while the acknowledgement fails. The next try uses the pattern consumer.
func TestAckOfVanishedTopicIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := testkit.NewFake()
		c, opts := testkit.SubscribeFakeWith(t, inner,
			pulsar.ConsumerOptions{TopicsPattern: "persistent://public/default/.*", Type: pulsar.Shared})
		inner.Deliver(1)
		msg := testkit.Receive(t, c)
		gone := errors.New("consumer state is closed")
		inner.Gate = make(chan struct{})
		inner.FailAcks(gone)
		first := make(chan error, 1)
		go func() { first <- c.Ack(msg) }()
		synctest.Wait()
		opts.Interceptors.OnConsumerClose(inner, nil)
		inner.Gate <- struct{}{}
		require.ErrorIs(t, <-first, gone)
		inner.Gate = nil
		require.Equal(t, pulsar.AckError{msg.ID(): gone}, c.AckIDList([]pulsar.MessageID{msg.ID()}))
		require.ErrorIs(t, c.Ack(msg), gone)
	})
}

// Acknowledgements are grouped only by number, or for a very long time. The Consumer is never sure that they were sent.
func TestAcksGroupedByNumberAreNeverSure(t *testing.T) {
	t.Parallel()
	for name, longest := range map[string]time.Duration{"0": 0, "the longest": math.MaxInt64} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
			topic := b.NewTopic(0)
			opts := b.Options(topic, pulsar.Shared)
			opts.AckGroupingOptions = &pulsar.AckGroupingOptions{MaxSize: 3, MaxTime: longest}
			c := b.Subscribe(opts)
			b.Send(topic, 3, false)
			require.NoError(t, c.Ack(testkit.Receive(t, c)))
			require.NoError(t, c.Ack(testkit.Receive(t, c)))
			last := testkit.Receive(t, c)
			testkit.ReceiveNothing(t, c, 6*time.Second)
			b.InProcess.SetHook(func(command pulsartest.Command) pulsartest.Verdict {
				if command.Type == "ACK" {
					return pulsartest.Drop
				}
				return pulsartest.Pass
			})
			require.NoError(t, c.Ack(last))
			b.InProcess.SetHook(nil)
			b.InProcess.DropConnections()
			testkit.ReceiveNothing(t, c, 3*time.Second)
			b.Settles(topic, 0)
		})
	}
}
