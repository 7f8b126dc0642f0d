package deadletter_test

import (
	"errors"
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
)

// service consumes a topic with retries and dead letters.
func (b *broker) service(topic string, p redelivery.DeadLetterPolicy,
	options ...redelivery.Option) *redelivery.Consumer {
	p.MaxReconsumes, p.InitialSubscriptionName = 5, "inspect"
	c, err := redelivery.Subscribe(b.client,
		pulsar.ConsumerOptions{Topic: topic, SubscriptionName: sub, Type: pulsar.Shared,
			SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest},
		append(options, redelivery.WithReconsumeBackoff(backoff.Fixed(0)),
			redelivery.WithDeadLetterPolicy(p), redelivery.WithLogger(slog.New(slog.DiscardHandler)))...)
	require.NoError(b.t, err)
	b.t.Cleanup(c.Close)
	return c
}

// One service forwards messages with the properties of replayed letters to another service. The letters of the second
// service count as never replayed, whatever custom properties its retries have.
func TestReplaysOfAnotherServiceDoNotCount(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	orders, ship := b.topics(0), b.topics(0)
	second := b.service(ship.origin, redelivery.DeadLetterPolicy{})
	replayed := orders.letter(0)
	replayed.Properties["REPLAY_COUNT"], replayed.Properties["REPLAY_RUN"] = "2", "earlier"
	b.publish(pulsar.ProducerOptions{Topic: orders.dlq}, 1, replayed)
	_, err := b.open(orders.dlq).Replay(bg, deadletter.ReplayOptions{ToOrigin: true})
	require.NoError(t, err)
	order := b.receive(orders.origin)[0]
	require.Equal(t, "3", order.Properties()["REPLAY_COUNT"])
	b.publish(pulsar.ProducerOptions{Topic: ship.origin}, 1,
		&pulsar.ProducerMessage{Payload: order.Payload(), Properties: maps.Clone(order.Properties())})

	msg, err := second.Receive(waittest.Context(t))
	require.NoError(t, err)
	second.ReconsumeLaterWithCustomProperties(msg, maps.Clone(msg.Properties()), time.Millisecond)
	msg, err = second.Receive(waittest.Context(t))
	require.NoError(t, err)
	require.NoError(t, second.DeadLetter(t.Context(), msg, errors.New("no ship")))
	d := b.open(ship.dlq, func(o *deadletter.Options) { o.Subscription = "inspect" })
	letter := peek(t, d)[0]
	require.Zero(t, letter.Replays)
	for _, name := range []string{"REPLAY_COUNT", "REPLAY_RUN", "REPLAY_TOPIC"} {
		require.NotContains(t, letter.Properties, name)
	}
	report, err := d.Replay(bg, deadletter.ReplayOptions{ToOrigin: true})
	require.NoError(t, err)
	require.Equal(t, 1, report.Done)
	msg, err = second.Receive(waittest.Context(t))
	require.NoError(t, err)
	require.Equal(t, "1", msg.Properties()["REPLAY_COUNT"])
}

// It does not matter to which topics the letters of the message are replayed.
func TestReplaysOfAMessageCountTogether(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]deadletter.ReplayOptions{
		"to the retry topic": {}, "to the origin": {ToOrigin: true},
		"to another topic": {Topic: "persistent://public/default/other"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			tp := b.topics(0)
			consumed := tp.origin
			if o.Topic != "" {
				o.Topic = b.topics(0).origin
				consumed = o.Topic
			}
			c := b.service(consumed, redelivery.DeadLetterPolicy{Topic: tp.dlq, RetryTopic: tp.retry})
			b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letter(0))
			d := b.open(tp.dlq, func(o *deadletter.Options) { o.Subscription = "inspect" })
			for range 3 {
				report, err := d.Replay(bg, o)
				require.NoError(t, err)
				require.Equal(t, 1, report.Done)
				msg, err := c.Receive(waittest.Context(t))
				require.NoError(t, err)
				require.NoError(t, c.ReconsumeLaterAfter(t.Context(), msg, 0, nil))
				msg, err = c.Receive(waittest.Context(t))
				require.NoError(t, err)
				require.NoError(t, c.DeadLetter(t.Context(), msg, errors.New("no luck")))
			}
			require.Equal(t, 3, peek(t, d)[0].Replays)
			report, err := d.Replay(bg, o)
			require.NoError(t, err)
			require.Zero(t, report.Done)
			require.Equal(t, "was replayed 3 times or more", report.Left[0].Why)
		})
	}
}
