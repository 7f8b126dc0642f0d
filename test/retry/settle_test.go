package retry

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/reconsume"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// The message comes back before it could be moved to the retry topic.
func TestRedeliveredMessageIsNotMoved(t *testing.T) {
	t.Parallel()
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
	r, err := reconsume.New(b.Client,
		reconsume.Options{Topic: "t", Subscription: testkit.Subscription, OperationTimeout: time.Second})
	require.NoError(t, err)
	t.Cleanup(r.Close)
	c := b.Subscribe(b.Options("t", pulsar.Shared), redelivery.WithReconsumer(r),
		redelivery.WithNackRetryTopic(100*time.Millisecond),
		redelivery.WithNackRedeliveryDelay(300*time.Millisecond))
	b.Send("t", 2, false)
	b.InProcess.SetHook(func(command pulsartest.Command) pulsartest.Verdict {
		if command.Type == "PRODUCER" && strings.HasSuffix(command.Topic, "-RETRY") {
			return pulsartest.Drop
		}
		return pulsartest.Pass
	})
	for range 2 { // the first message waits for a second until the producer exists; in that time the second one comes back
		c.Nack(testkit.Receive(t, c))
	}
	second := testkit.Receive(t, c)
	require.EqualValues(t, 1, c.RedeliveryCount(second))
	first := testkit.Receive(t, c)
	require.NotEqual(t, first.Payload(), second.Payload())
	testkit.ReceiveNothing(t, c, 300*time.Millisecond)
	require.NoError(t, c.Ack(first))
	require.NoError(t, c.Ack(second))
	b.Settles("persistent://public/default/t", 0)
	assert.Empty(t, b.InProcess.Messages("t-"+testkit.Subscription+"-RETRY"))
	assert.EqualValues(t, 1, c.Stats().Failed)
}

// As with upstream, RetryEnable needs no DLQ for that.
func TestRetryEnableHasDeadLetters(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	opts := b.Options(topic, pulsar.Shared)
	opts.RetryEnable = true
	c := b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(0))
	dead := b.SubscribeDeadLetters(topic)
	b.Send(topic, 1, false)
	for n := range uint32(publishing.MaxReconsumes) {
		msg := testkit.Receive(t, c)
		require.Equal(t, n, c.RedeliveryCount(msg))
		c.Nack(msg)
	}
	testkit.ReceiveNothing(t, c, 500*time.Millisecond)
	testkit.Next(t, dead, waittest.Limit)
	b.Settles(topic, 0)
}

// The broker releases delayed messages up to a second too early.
func TestRetriesOfOwnReconsumerAreNeverEarly(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	r, err := reconsume.New(b.Client, reconsume.Options{Topic: topic, Subscription: testkit.Subscription})
	require.NoError(t, err)
	t.Cleanup(r.Close)
	opts := b.Options("", pulsar.Shared)
	opts.Topics = []string{topic, r.RetryTopic()}
	c := b.Subscribe(opts, redelivery.WithReconsumer(r))
	b.Send(topic, 20, false)
	due := map[string]time.Time{}
	for i := range 40 {
		msg := testkit.Receive(t, c)
		name := string(msg.Payload())
		if at, ok := due[name]; ok {
			require.False(t, time.Now().Before(at), "%s is early by %v", name, time.Until(at))
			require.NoError(t, c.Ack(msg))
			continue
		}
		delay := time.Duration(700+37*i) * time.Millisecond
		due[name] = time.Now().Add(delay)
		require.NoError(t, c.ReconsumeLaterAfter(context.Background(), msg, delay, nil))
	}
	b.Settles(topic, 0)
}
