package suite

import (
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// A message that came back before it could be moved to the retry topic is the application's.
func TestAMessageThatCameBackIsNotMoved(t *testing.T) {
	t.Parallel()
	b := newInProcess(t, pulsar.ClientOptions{})
	r, err := reconsume.New(b.client, reconsume.Options{Topic: "t", Subscription: sub, OperationTimeout: time.Second})
	require.NoError(t, err)
	t.Cleanup(r.Close)
	c := b.subscribe(b.options("t", pulsar.Shared), redelivery.WithReconsumer(r), redelivery.WithNackRetryTopic(ms(100)),
		redelivery.WithNackRedeliveryDelay(ms(300)))
	b.send("t", 2, false)
	b.inProcess.SetHook(func(command pulsartest.Command) pulsartest.Verdict {
		if command.Type == "PRODUCER" && strings.HasSuffix(command.Topic, "-RETRY") {
			return pulsartest.Drop
		}
		return pulsartest.Pass
	})
	for range 2 { // the first waits for a producer for a second, in which the second comes back
		c.Nack(receive(t, c))
	}
	second := receive(t, c)
	require.EqualValues(t, 1, c.RedeliveryCount(second))
	first := receive(t, c)
	require.NotEqual(t, first.Payload(), second.Payload())
	nothing(t, c, ms(300))
	require.NoError(t, c.Ack(first))
	require.NoError(t, c.Ack(second))
	b.settles("persistent://public/default/t", 0)
	assert.Empty(t, b.inProcess.Messages("t-"+sub+"-RETRY"))
	assert.EqualValues(t, 1, c.Stats().Failed)
}

// As with upstream.
func TestRetryEnableHasDeadLetters(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic(0)
	opts := b.options(topic, pulsar.Shared)
	opts.RetryEnable = true
	c := b.subscribe(opts, redelivery.WithNackRedeliveryDelay(0))
	dead := b.deadLetters(topic)
	b.send(topic, 1, false)
	for n := range uint32(publishing.MaxReconsumes) {
		msg := receive(t, c)
		require.Equal(t, n, c.RedeliveryCount(msg))
		c.Nack(msg)
	}
	nothing(t, c, ms(500))
	next(t, dead, 5*time.Second)
	b.settles(topic, 0)
}

// The broker releases delayed messages up to a second early.
func TestRetriesOfAReconsumerOfOnesOwnAreNeverEarly(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic(0)
	r, err := reconsume.New(b.client, reconsume.Options{Topic: topic, Subscription: sub})
	require.NoError(t, err)
	t.Cleanup(r.Close)
	opts := b.options("", pulsar.Shared)
	opts.Topics = []string{topic, r.RetryTopic()}
	c := b.subscribe(opts, redelivery.WithReconsumer(r))
	b.send(topic, 20, false)
	due := map[string]time.Time{}
	for i := range 40 {
		msg := receive(t, c)
		name := string(msg.Payload())
		if at, ok := due[name]; ok {
			require.False(t, time.Now().Before(at), "%s is early by %v", name, time.Until(at))
			require.NoError(t, c.Ack(msg))
			continue
		}
		delay := ms(700 + 37*i)
		due[name] = time.Now().Add(delay)
		require.NoError(t, c.ReconsumeLaterAfter(bg, msg, delay, nil))
	}
	b.settles(topic, 0)
}
