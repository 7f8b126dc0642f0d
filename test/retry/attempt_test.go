package retry

import (
	"context"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// attemptOf returns the number of the attempt, as c.Delivery reports it.
func attemptOf(t *testing.T, c *redelivery.Consumer, msg pulsar.Message) uint32 {
	d, err := c.Delivery(msg)
	require.NoError(t, err)
	return d.Attempt
}

func TestAttemptCountsNacksAndRetriesFromOne(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	settled := make(chan redelivery.Settled, 10)
	c := b.Subscribe(b.Options(topic, pulsar.Shared), redelivery.WithNackRedeliveryDelay(10*time.Millisecond),
		redelivery.WithNackRetryTopic(time.Second),
		redelivery.WithReconsumeBackoff(backoff.Fixed(0)),
		redelivery.WithObserver(redelivery.Observer{Settled: func(e redelivery.Settled) { settled <- e }}))
	b.Send(topic, 1, false)
	bg := context.Background()
	for attempt, fail := range []func(pulsar.Message) error{
		func(msg pulsar.Message) error { return c.NackWithDelay(msg, 0) },
		func(msg pulsar.Message) error { return c.Snooze(msg, 0) },
		func(msg pulsar.Message) error { return c.NackWithDelay(msg, 0) },
		func(msg pulsar.Message) error { return c.ReconsumeLaterNext(bg, msg) },
		func(msg pulsar.Message) error { return c.NackWithDelay(msg, 0) },
		// a nack for a second moves the message to the retry topic
		func(msg pulsar.Message) error { return c.NackWithDelay(msg, time.Second) },
		func(msg pulsar.Message) error { return c.NackWithDelay(msg, time.Second) },
		func(msg pulsar.Message) error { return c.ReconsumeLaterNext(bg, msg) },
		c.Ack,
	} {
		want := uint32(attempt) + 1
		if attempt > 1 { // the snooze before does not count
			want--
		}
		msg := testkit.Receive(t, c)
		require.Equal(t, want, attemptOf(t, c, msg), "delivery %d", attempt+1)
		require.NoError(t, fail(msg))
		e := waittest.Next(t, settled)
		require.Equal(t, want, e.Attempts, "%s, delivery %d", e.Outcome, attempt+1)
	}
}

func TestAttemptOfForeignRetryCountsItsReconsumes(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	opts := b.Options(topic, pulsar.Shared)
	c := b.Subscribe(opts, redelivery.WithReconsumeBackoff(backoff.Fixed(0)))
	retry := map[string]string{"RECONSUMETIMES": "3", "REAL_TOPIC": topic, "ORIGIN_MESSAGE_IDY_TIME": "1:1:0",
		"NACK_COUNT": "2:9"}
	msg := &pulsar.ProducerMessage{Payload: []byte("tea"), Properties: retry}
	b.Publish(pulsar.ProducerOptions{Topic: topic + "-" + opts.SubscriptionName + "-RETRY"}, msg)
	require.EqualValues(t, 4, attemptOf(t, c, testkit.Receive(t, c)))
	b.Publish(pulsar.ProducerOptions{Topic: topic}, msg) // a retry forwarded to the main topic is a new message
	require.EqualValues(t, 1, attemptOf(t, c, testkit.Receive(t, c)))
}

// After three deliveries the count is 2, whichever call or timeout makes the message a dead letter.
func TestDeadLetterHasRedeliveryCountOfItsLastDelivery(t *testing.T) {
	t.Parallel()
	bg := context.Background()
	nack := func(c *redelivery.Consumer, msg pulsar.Message) error { c.Nack(msg); return nil }
	for name, last := range map[string]func(*redelivery.Consumer, pulsar.Message) error{
		"a nack":         nack,
		"an ack timeout": func(*redelivery.Consumer, pulsar.Message) error { return nil },
		"DeadLetter":     func(c *redelivery.Consumer, msg pulsar.Message) error { return c.DeadLetter(bg, msg, nil) },
		"NackID":         func(c *redelivery.Consumer, msg pulsar.Message) error { c.NackID(msg.ID()); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
			topic := b.NewTopic(0)
			opts := b.Options(topic, pulsar.Shared)
			c := b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(0),
				redelivery.WithAckTimeout(200*time.Millisecond),
				redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 3,
					InitialSubscriptionName: "inspect"}))
			b.Send(topic, 1, false)
			for range 2 {
				c.Nack(testkit.Receive(t, c))
			}
			require.NoError(t, last(c, testkit.Receive(t, c)))
			dead := opts
			dead.Topic, dead.SubscriptionName = topic+"-"+opts.SubscriptionName+"-DLQ", "inspect"
			reader, err := b.Client.Subscribe(dead)
			require.NoError(t, err)
			defer reader.Close()
			require.Equal(t, "2", testkit.Next(t, reader, 10*time.Second).Properties()["REDELIVERY_COUNT"])
		})
	}
}

// A batch Worker acknowledges by id, and an ack timeout knows only the id.
func TestAttemptsOfARetrySettledByIDAreCountedOverAllRetries(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	settled := make(chan redelivery.Settled, 10)
	c := b.Subscribe(b.Options(topic, pulsar.Shared), redelivery.WithReconsumeBackoff(backoff.Fixed(0)),
		redelivery.WithAckTimeout(time.Second),
		redelivery.WithObserver(redelivery.Observer{Settled: func(e redelivery.Settled) { settled <- e }}))
	ids := func(msg pulsar.Message) []pulsar.MessageID { return []pulsar.MessageID{msg.ID()} }
	for _, by := range []func(pulsar.Message) error{
		func(msg pulsar.Message) error { return c.AckIDList(ids(msg)) },
		func(msg pulsar.Message) error { return c.AckID(msg.ID()) },
		func(pulsar.Message) error { return nil },
	} {
		b.Send(topic, 1, false)
		require.NoError(t, c.ReconsumeLaterNext(context.Background(), testkit.Receive(t, c)))
		require.EqualValues(t, 1, waittest.Next(t, settled).Attempts)
		require.NoError(t, by(testkit.Receive(t, c)))
		e := waittest.Next(t, settled)
		require.EqualValues(t, 2, e.Attempts, e.Outcome)
	}
}
