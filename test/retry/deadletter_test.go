package retry

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// The same holds if the last delivery times out. No goroutine receives.
func TestNackOfLastDeliveryIsDeadLetterAtOnce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		options []redelivery.Option
		fail    func(*redelivery.Consumer, pulsar.Message)
	}{
		"timeout": {options: []redelivery.Option{redelivery.WithAckTimeout(100 * time.Millisecond)}},
		"NackID, ack timeout": {options: []redelivery.Option{redelivery.WithAckTimeout(time.Hour)},
			fail: func(c *redelivery.Consumer, msg pulsar.Message) { c.NackID(msg.ID()) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			opts := b.Options(topic, pulsar.Shared)
			opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 1}
			c := b.Subscribe(opts, append(test.options, redelivery.WithNackRedeliveryDelay(time.Hour))...)
			dead := b.SubscribeDeadLetters(topic)
			b.Send(topic, 1, false)
			msg := testkit.Receive(t, c)
			if test.fail != nil {
				test.fail(c, msg)
			}
			require.Equal(t, msg.Payload(), testkit.Next(t, dead, 10*time.Second).Payload())
			b.Settles(topic, 0)
		})
	}
}

func TestRefusedDeadLetterIsTriedAgain(t *testing.T) {
	t.Parallel()
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
	topic := b.NewTopic(0)
	var log logtest.Buffer
	opts := b.Options(topic, pulsar.Exclusive)
	opts.NackRedeliveryDelay, opts.DLQ = 100*time.Millisecond, &pulsar.DLQPolicy{MaxDeliveries: 1}
	c := b.Subscribe(opts, testkit.LogTo(&log))
	b.InProcess.Inject("PRODUCER", testkit.DeadLetterTopic(topic), -1,
		pulsartest.Fail("TopicTerminatedError", "injected"))
	b.Send(topic, 1, false)
	c.Nack(testkit.Receive(t, c))
	require.Eventually(t, func() bool { return c.Stats().Failed > 0 }, 10*time.Second, 10*time.Millisecond)
	require.Contains(t, log.String(), `"redelivery: dead letter failed" topic=`+topic)
	require.Equal(t, 1, b.Stats(topic, 0).Backlog)
	b.InProcess.Inject("PRODUCER", testkit.DeadLetterTopic(topic), 0, pulsartest.Pass)
	dead := b.SubscribeDeadLetters(topic)
	go func() { _, _ = c.Receive(context.Background()) }()
	require.Equal(t, "0", string(testkit.Next(t, dead, 30*time.Second).Payload()))
	b.Settles(topic, 0)
}

func TestDeadLetterIsLoggedWithTheErrorUnlessOmitted(t *testing.T) {
	t.Parallel()
	for _, omit := range []bool{false, true} {
		broker := pulsartest.NewServer(t)
		var log logtest.Buffer
		c, err := redelivery.Subscribe(broker.Client(t),
			pulsar.ConsumerOptions{Topic: "orders", SubscriptionName: "billing", Type: pulsar.Shared},
			redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 1, OmitCause: omit}),
			redelivery.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		require.NoError(t, err)
		defer c.Close()
		broker.Publish(t, "orders", &pulsar.ProducerMessage{Payload: []byte("tea")})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		msg, err := c.Receive(ctx)
		require.NoError(t, err)
		require.NoError(t, c.DeadLetter(ctx, msg, errors.New("card 4111 refused"+strings.Repeat("!", 2000))))
		require.Contains(t, log.String(), `msg="redelivery: dead letter"`)
		require.Contains(t, log.String(), "error_type=*errors.errorString")
		require.Equal(t, !omit, strings.Contains(log.String(), `error="card 4111 refused!!!`))
		require.Less(t, len(log.String()), 2000)
	}
}

// A message becomes a dead letter without another delivery, and so is not redelivered.
func TestDeadLettersAreNotRedelivered(t *testing.T) {
	t.Parallel()
	testkit.Each(t, map[string]pulsar.SubscriptionType{"Exclusive": pulsar.Exclusive, "Shared": pulsar.Shared},
		func(t *testing.T, kind pulsar.SubscriptionType) {
			const n = 50
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			c := b.Subscribe(b.Options(topic, kind), redelivery.WithNackRedeliveryDelay(0),
				redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 1}))
			b.Send(topic, n, false)
			for range n {
				c.Nack(testkit.Receive(t, c))
			}
			testkit.ReceiveNothing(t, c, time.Second)
			b.Settles(topic, 0)
			require.Zero(t, c.Stats().Redelivered)
		})
}
