package ack

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

func TestDeliveryReportsWaitingAndSettled(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	c := b.Subscribe(b.Options(topic, pulsar.Shared), redelivery.WithNackRedeliveryDelay(time.Minute))
	b.Send(topic, 2, false)
	state := func(msg pulsar.Message) [2]bool {
		d, err := c.Delivery(msg)
		require.NoError(t, err)
		return [2]bool{d.Waiting, d.Settled}
	}
	nacked, acked := testkit.Receive(t, c), testkit.Receive(t, c)
	require.Equal(t, [2]bool{}, state(nacked))
	c.Nack(nacked)
	require.NoError(t, c.Ack(acked))
	require.Equal(t, [2]bool{true, false}, state(nacked))
	require.Equal(t, [2]bool{false, true}, state(acked))
	require.NoError(t, c.Ack(nacked))
	require.Equal(t, [2]bool{false, true}, state(nacked))
}

// Some of the acknowledgements are concurrent.
func TestRepeatedAckIsReportedOnce(t *testing.T) {
	t.Parallel()
	const n = 20
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	var acked atomic.Int32
	opts := b.Options(topic, pulsar.Shared)
	opts.AckWithResponse = true
	c := b.Subscribe(opts, redelivery.WithObserver(redelivery.Observer{Settled: func(redelivery.Settled) { acked.Add(1) }}))
	b.Send(topic, 2*n, false)
	for range n {
		msg, done := testkit.Receive(t, c), make(chan error)
		go func() { done <- c.Ack(msg) }()
		require.NoError(t, c.Ack(msg))
		require.NoError(t, waittest.Next(t, done))
		id := testkit.Receive(t, c).ID()
		require.NoError(t, c.AckIDList([]pulsar.MessageID{id, id, id}))
	}
	require.EqualValues(t, 2*n, acked.Load())
}

// The message waits in memory, and comes back with the application's changes.
func TestMessageChangedByTheApplicationWaitsAsItIs(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	c := b.Subscribe(b.Options(topic, pulsar.Shared), redelivery.WithNackRedeliveryDelay(0))
	b.Publish(pulsar.ProducerOptions{Topic: topic},
		&pulsar.ProducerMessage{Payload: []byte("good"), Properties: map[string]string{"a": "b"}})
	msg := testkit.Receive(t, c)
	msg.Payload()[0], msg.Properties()["a"] = 'f', "c"
	c.Nack(msg)
	msg = testkit.Receive(t, c)
	require.Equal(t, "food", string(msg.Payload()))
	require.Equal(t, map[string]string{"a": "c"}, msg.Properties())
	require.NoError(t, c.Ack(msg))
}
