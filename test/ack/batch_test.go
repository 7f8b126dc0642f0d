package ack

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// Each acknowledgement of a message of a batch reaches upstream, with the message's id. If upstream returns an error,
// the application still has the message.
func TestAckOfEachMessageOfABatchReachesUpstream(t *testing.T) {
	var outcomes []redelivery.Outcome
	c, inner := testkit.SubscribeFake(t, pulsar.Shared, redelivery.WithObserver(redelivery.Observer{
		Settled: func(s redelivery.Settled) { outcomes = append(outcomes, s.Outcome) },
	}))
	var msgs []pulsar.Message
	var ids []pulsar.MessageID
	for i := range int32(4) {
		id := &testkit.BatchID{MessageID: pulsar.NewMessageID(1, 1, i, 0), Size: 4}
		inner.Queue <- pulsar.ConsumerMessage{Consumer: inner,
			Message: testkit.Message{MessageID: id, TopicName: "persistent://public/default/t"}}
		msgs, ids = append(msgs, testkit.Receive(t, c)), append(ids, id)
	}
	acks := []func() error{
		func() error { return c.Ack(msgs[0]) }, func() error { return c.AckID(ids[1]) },
		func() error { return c.AckIDList(ids[2:3]) }, func() error { return c.Ack(msgs[3]) },
	}
	for i, ack := range acks {
		inner.FailAcks(errors.New("refused"))
		require.ErrorContains(t, ack(), "refused")
		d, err := c.Delivery(msgs[i])
		require.NoError(t, err)
		require.NotZero(t, d.NackDelay)
		require.EqualValues(t, i, c.Stats().Unfinished)
		inner.FailAcks(nil)
		outcomes = nil
		require.NoError(t, ack())
		require.Equal(t, ids[:i+1], inner.Acks()[:i+1])
		require.Equal(t, []redelivery.Outcome{redelivery.Acked}, outcomes)
		n := len(inner.Acks()) // the ack of the last message also acknowledges the whole batch
		require.NoError(t, ack(), "a second ack of the settled message failed")
		require.Len(t, inner.Acks(), n)
	}
	require.Zero(t, c.Stats().Unfinished)
}

// A message whose acknowledgement upstream refused comes back after a nack.
func TestNackAfterFailedAckRedelivers(t *testing.T) {
	c, inner := testkit.SubscribeFake(t, pulsar.Shared, redelivery.WithNackRedeliveryDelay(10*time.Millisecond))
	for i := range int32(2) {
		inner.Queue <- pulsar.ConsumerMessage{Consumer: inner,
			Message: testkit.Message{MessageID: &testkit.BatchID{MessageID: pulsar.NewMessageID(1, 1, i, 0), Size: 2}}}
	}
	msg := testkit.Receive(t, c)
	testkit.Receive(t, c)
	inner.FailAcks(errors.New("refused"))
	require.Error(t, c.Ack(msg))
	c.Nack(msg)
	again := testkit.Receive(t, c)
	require.Equal(t, msg.ID(), again.ID())
	require.EqualValues(t, 1, again.RedeliveryCount())
}

// The order of the methods that settle its messages does not matter. Nor does a seek into the middle of the batch,
// after which its first messages are not delivered.
func TestBatchEndsAcknowledgedByAnyMethod(t *testing.T) {
	t.Parallel()
	const n = 10
	ack := func(c *redelivery.Consumer, msg pulsar.Message) error { return c.Ack(msg) }
	list := func(c *redelivery.Consumer, msg pulsar.Message) error {
		return c.AckIDList([]pulsar.MessageID{msg.ID()})
	}
	bury := func(c *redelivery.Consumer, msg pulsar.Message) error {
		return c.DeadLetter(context.Background(), msg, errors.New("bad"))
	}
	again := func(c *redelivery.Consumer, msg pulsar.Message) error { c.Nack(msg); return nil }
	for name, verbs := range map[string][]func(*redelivery.Consumer, pulsar.Message) error{
		"ack": {ack}, "ack and list": {ack, list}, "list and ack": {list, ack}, "dead letter last": {ack, ack, ack, ack, ack, ack, ack, ack, ack, bury},
		"dead letters": {ack, bury}, "nacks": {again, ack, ack}, "nack last": {ack, ack, ack, ack, ack, ack, ack, ack, ack, again},
	} {
		for _, response := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " with response"}[response], func(t *testing.T) {
				t.Parallel()
				b := testkit.NewBroker(t)
				topic := b.NewTopic(0)
				opts := b.Options(topic, pulsar.Shared)
				opts.AckWithResponse = response
				c := b.Subscribe(opts, redelivery.WithClient(b.Client),
					redelivery.WithNackRedeliveryDelay(100*time.Millisecond),
					redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 10}))
				b.Send(topic, n, true)
				for i := range n {
					msg := testkit.Receive(t, c)
					require.NoError(t, verbs[i%len(verbs)](c, msg))
				}
				// the nacked messages
				testkit.Drain(t, c, time.Second, func(msg pulsar.Message) { require.NoError(t, c.Ack(msg)) })
				b.Settles(topic, 0)
			})
		}
	}
	t.Run("after a seek", func(t *testing.T) {
		t.Parallel()
		b := testkit.NewBroker(t)
		topic := b.NewTopic(0)
		c := b.Subscribe(b.Options(topic, pulsar.Shared))
		b.Send(topic, n, true)
		var middle pulsar.MessageID
		for i := range n {
			if msg := testkit.Receive(t, c); i == n/2 {
				middle = msg.ID()
			}
		}
		require.NoError(t, c.Seek(middle))
		testkit.Drain(t, c, 2*time.Second, func(msg pulsar.Message) { require.NoError(t, c.Ack(msg)) })
		b.Settles(topic, 0)
	})
	t.Run("without a queue", func(t *testing.T) {
		t.Parallel()
		b := testkit.NewBroker(t)
		topic := b.NewTopic(0)
		opts := b.Options(topic, pulsar.Shared)
		opts.EnableZeroQueueConsumer = true
		c := b.Subscribe(opts)
		b.Send(topic, n, true)
		for range n {
			require.NoError(t, c.Ack(testkit.Receive(t, c)))
		}
		b.Settles(topic, 0)
	})
	t.Run("cumulatively", func(t *testing.T) {
		t.Parallel()
		b := testkit.NewBroker(t)
		topic := b.NewTopic(0)
		c := b.Subscribe(b.Options(topic, pulsar.Exclusive))
		b.Send(topic, n, true)
		var msgs []pulsar.Message
		for range n {
			msgs = append(msgs, testkit.Receive(t, c))
		}
		for _, msg := range msgs[n/2:] {
			require.NoError(t, c.Ack(msg))
		}
		require.NoError(t, c.AckCumulative(msgs[n/2-1]))
		b.Settles(topic, 0)
	})
}

// The last message of a batch is published during Close. Its siblings, which were acknowledged before, do not come
// again.
//
// Close waits half a second for the broker's receipt. If this computer stalls for longer, the batch may come again, and
// the test repeats the attempt.
func TestBatchEndsAcknowledgedDuringClose(t *testing.T) {
	for name, publish := range map[string]func(*redelivery.Consumer, pulsar.Message) error{
		"reconsume": func(c *redelivery.Consumer, msg pulsar.Message) error {
			return c.ReconsumeLaterAfter(context.Background(), msg, time.Hour, nil)
		},
		"dead letter": func(c *redelivery.Consumer, msg pulsar.Message) error {
			return c.DeadLetter(context.Background(), msg, errors.New("bad"))
		},
		"last nack": func(c *redelivery.Consumer, msg pulsar.Message) error { c.Nack(msg); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 20 {
				if inTime, backlog := closeWhilePublishing(t, publish); inTime {
					require.Zero(t, backlog)
					return
				}
			}
			t.Fatal("the receipt never came while Close waited for it")
		})
	}
}

// The acknowledgement that names the whole batch follows those of its messages. A Close right after AckIDList sends it.
func TestListThatCompletesABatchAcknowledgesItBeforeClose(t *testing.T) {
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
	topic := b.NewTopic(0)
	opts := b.Options(topic, pulsar.Shared)
	opts.NackRedeliveryDelay = 10 * time.Millisecond
	c := b.Subscribe(opts, redelivery.WithMemoryLimit(0), redelivery.WithoutBatchIndexAcks())
	b.Send(topic, 2, true)
	first, second := testkit.Receive(t, c), testkit.Receive(t, c)
	require.NoError(t, c.NackWithDelay(first, 0))
	testkit.Receive(t, c) // the batch has come twice
	require.NoError(t, c.AckIDList([]pulsar.MessageID{first.ID(), second.ID()}))
	c.Close()
	require.Zero(t, b.InProcess.Subscription(topic, testkit.Subscription).Backlog)
}

// closeWhilePublishing closes a Consumer while it publishes the last message of a batch, and returns the backlog after
// that. inTime is false if Close took so long that the receipt may have come too late.
func closeWhilePublishing(t *testing.T, publish func(*redelivery.Consumer, pulsar.Message) error) (inTime bool, backlog int) {
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
	topic := b.NewTopic(0)
	opts := b.Options(topic, pulsar.Shared)
	opts.RetryEnable, opts.DLQ = true, &pulsar.DLQPolicy{MaxDeliveries: 1}
	c := b.Subscribe(opts)
	b.Send(topic, 2, true)
	first, last := testkit.Receive(t, c), testkit.Receive(t, c)
	require.NoError(t, c.Ack(first))

	stored := make(chan struct{}, 1)
	b.InProcess.SetHook(func(command pulsartest.Command) pulsartest.Verdict {
		if command.Type != "SEND_RECEIPT" {
			return pulsartest.Pass
		}
		stored <- struct{}{}
		return pulsartest.Pass.After(100 * time.Millisecond)
	})
	done := make(chan error, 1)
	go func() { done <- publish(c, last) }()
	waittest.Next(t, stored)
	begun := time.Now()
	c.Close()
	err := waittest.Next(t, done)
	if time.Since(begun) > 400*time.Millisecond {
		return false, 0
	}
	require.NoError(t, err)
	return true, b.InProcess.Subscription(topic, testkit.Subscription).Backlog
}

// The message comes after messages of batches, but is not of a batch.
func TestSettledSingleMessageIsNotBegun(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	c := b.Subscribe(b.Options(topic, pulsar.Shared))
	b.Send(topic, 3, true)
	require.NoError(t, c.Ack(testkit.Receive(t, c)))
	begun := testkit.Receive(t, c)
	testkit.Receive(t, c)
	b.Send(topic, 1, false)
	msg := testkit.Receive(t, c)
	require.NoError(t, c.Ack(msg))
	for msg, want := range map[pulsar.Message]bool{begun: true, msg: false} {
		d, err := c.Delivery(msg)
		require.NoError(t, err)
		require.Equal(t, want, d.Begun)
	}
}

func TestAckedSiblingsStayAcked(t *testing.T) {
	t.Parallel()
	testkit.Each(t, testkit.SubscriptionTypes, func(t *testing.T, kind pulsar.SubscriptionType) {
		testkit.Each(t, map[string]bool{"index acks": true, "no index acks": false}, func(t *testing.T, index bool) {
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			opts := b.Options(topic, kind)
			opts.EnableBatchIndexAcknowledgment = index
			c := b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(300*time.Millisecond))
			b.Send(topic, 5, true)
			var msgs []pulsar.Message
			for range 5 {
				msgs = append(msgs, testkit.Receive(t, c))
			}
			require.EqualValues(t, 5, msgs[0].ID().BatchSize())
			require.NoError(t, c.Ack(msgs[0]))
			require.NoError(t, c.Ack(msgs[1]))
			c.Nack(msgs[2])
			again := testkit.Receive(t, c)
			require.Equal(t, "2", string(again.Payload()))
			testkit.ReceiveNothing(t, c, 500*time.Millisecond)
			require.NoError(t, c.Ack(msgs[3]))
			require.NoError(t, c.Ack(again))
			require.NoError(t, c.Ack(msgs[4]))
			testkit.ReceiveNothing(t, c, 200*time.Millisecond)
			b.Settles(topic, 0)
		})
	})
}
