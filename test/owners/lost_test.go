package owners

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// losses records the events of Observer.Lost.
type losses struct {
	mu     sync.Mutex
	events []redelivery.Lost
}

func (l *losses) observer() redelivery.Option {
	return redelivery.WithObserver(redelivery.Observer{Lost: func(e redelivery.Lost) {
		l.mu.Lock()
		defer l.mu.Unlock()
		e.Consumer = nil
		l.events = append(l.events, e)
	}})
}

func (l *losses) all() []redelivery.Lost {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]redelivery.Lost(nil), l.events...)
}

// awaitReclaim waits until Reclaim returns the wanted error.
func awaitReclaim(t *testing.T, c *redelivery.Consumer, msg pulsar.Message, want error) {
	t.Helper()
	require.Eventually(t, func() bool { return errors.Is(c.Reclaim(msg), want) }, 20*time.Second, 50*time.Millisecond)
}

// On Shared and Key_Shared, another consumer may have the message after the connection was lost. If none has it, this
// consumer gets it again with the same count. On Exclusive and Failover, Reclaim returns nil: the message still belongs
// to this consumer.
func TestReclaimAfterLostConnectionGivesBack(t *testing.T) {
	t.Parallel()
	for name, kind := range testkit.SubscriptionTypes {
		t.Run(name, func(t *testing.T) {
			b, l := testkit.NewBroker(t), &losses{}
			topic := b.NewTopic(0)
			c := b.Subscribe(b.Options(topic, kind), l.observer())
			b.Send(topic, 1, false)
			msg := testkit.Receive(t, c)
			awaitReclaim(t, c, msg, nil)
			next := c.NextLoss()
			b.Unload(topic)
			waittest.Next(t, next)
			if err := c.Reclaim(msg); err != nil {
				require.ErrorIs(t, err, redelivery.ErrNotInFlight)
				require.NotEqual(t, pulsar.Exclusive, kind)
				require.NotEqual(t, pulsar.Failover, kind)
				again := testkit.Receive(t, c)
				require.Equal(t, msg.Payload(), again.Payload())
				msg = again
			}
			awaitReclaim(t, c, msg, nil)
			d, err := c.Delivery(msg)
			require.NoError(t, err)
			require.False(t, d.Lost)
			require.NoError(t, c.Ack(msg))
			awaitReclaim(t, c, msg, redelivery.ErrNotInFlight)
			next = c.NextLoss()
			c.Close()
			waittest.Next(t, next)
			require.ErrorIs(t, c.Reclaim(msg), redelivery.ErrClosed)
			events := l.all() // before Close, which may skip pending events
			require.Equal(t, redelivery.Lost{Subscription: testkit.Subscription, Why: redelivery.LostConsumer},
				events[len(events)-1])
		})
	}
}

// twiceTried is a message that the application itself tried again twice, as a Worker with key order does.
type twiceTried struct{ pulsar.Message }

func (twiceTried) RedeliveryCount() uint32  { return 2 }
func (m twiceTried) Unwrap() pulsar.Message { return m.Message }

func TestReclaimedMessageKeepsTheCountOfItsWrapper(t *testing.T) {
	t.Parallel()
	b, l := testkit.NewBroker(t), &losses{}
	topic := b.NewTopic(0)
	c := b.Subscribe(b.Options(topic, pulsar.KeyShared), l.observer())
	b.Send(topic, 1, false)
	msg := testkit.Receive(t, c)
	next := c.NextLoss()
	b.Unload(topic)
	waittest.Next(t, next)
	if c.Reclaim(twiceTried{msg}) == nil {
		return // the message came again before the call
	}
	msg = testkit.Receive(t, c)
	require.EqualValues(t, 2, c.RedeliveryCount(msg))
	require.NoError(t, c.Ack(msg))
}

// The message is not upstream's and has no topic.
func TestReclaimOfForeignMessageIsRefused(t *testing.T) {
	c, opts := testkit.SubscribeFakeWith(t, testkit.NewFake(), pulsar.ConsumerOptions{Type: pulsar.Shared})
	opts.BackOffPolicyFunc() // a connection is lost
	require.ErrorIs(t, c.Reclaim(identified{id: pulsar.NewMessageID(1, 1, 0, 0)}), redelivery.ErrNotInFlight)
}

// identified is a message of which only ID works.
type identified struct {
	pulsar.Message
	id pulsar.MessageID
}

func (m identified) ID() pulsar.MessageID { return m.id }

// Another consumer becomes active on a Failover partition. The messages of the first consumer now belong to the second,
// and the observer of the first is notified.
func TestMessagesOfAnotherActiveConsumerAreLost(t *testing.T) {
	t.Parallel()
	b, l := testkit.NewBroker(t), &losses{}
	topic := b.NewTopic(1)
	opts := b.Options(topic, pulsar.Failover)
	opts.Name = "b"
	c := b.Subscribe(opts, l.observer())
	b.Send(topic, 1, false)
	msg := testkit.Receive(t, c)
	next := c.NextLoss()
	go func() { _, _ = c.Receive(t.Context()) }()
	opts.Name = "a" // the consumer with the first name is active on the first partition
	other := b.Subscribe(opts)
	waittest.Next(t, next)
	awaitReclaim(t, c, msg, redelivery.ErrNotInFlight)
	require.Equal(t, msg.Payload(), testkit.Receive(t, other).Payload())
	require.Eventually(t, func() bool { return len(l.all()) > 0 }, time.Second, time.Millisecond)
	require.Equal(t, redelivery.Lost{Subscription: testkit.Subscription, Topic: topic + "-partition-0",
		Why: redelivery.LostPartition}, l.all()[0])
}

// The connection of an Exclusive consumer breaks, and another consumer subscribes before the first one has reconnected.
// The first Consumer gives up, and its observer gets LostConsumer. The other consumer gets the messages.
func TestMessagesOfClosedExclusiveConsumerAreLost(t *testing.T) {
	t.Parallel()
	b, l := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{OperationTimeout: 3 * time.Second}), &losses{}
	topic := b.NewTopic(0)
	opts, tries := b.Options(topic, pulsar.Exclusive), uint(3)
	opts.Name, opts.MaxReconnectToBroker = "first", &tries
	c := b.Subscribe(opts, l.observer())
	b.Send(topic, 1, false)
	msg := testkit.Receive(t, c)
	go func() { _, _ = c.Receive(t.Context()) }()
	b.InProcess.SetHook(func(command pulsartest.Command) pulsartest.Verdict {
		if command.Type == "SUBSCRIBE" && command.Consumer == "first" {
			// so that the other consumer is faster
			return pulsartest.Fail("ConsumerBusy", "Exclusive consumer is already connected")
		}
		return pulsartest.Pass
	})
	next := c.NextLoss()
	b.Unload(topic)
	waittest.Next(t, next)
	err := c.Reclaim(msg) // an Exclusive consumer does not know that there is another one
	require.True(t, err == nil || errors.Is(err, redelivery.ErrNotInFlight) || errors.Is(err, redelivery.ErrClosed),
		err)
	opts.Name, opts.MaxReconnectToBroker = "second", nil
	other := b.Subscribe(opts)
	require.Equal(t, msg.Payload(), testkit.Receive(t, other).Payload())
	waittest.Next(t, c.Done())
	require.ErrorIs(t, c.Reclaim(msg), redelivery.ErrClosed)
	require.Error(t, c.Ack(msg))
	require.Eventually(t, func() bool { return len(l.all()) > 0 && l.all()[len(l.all())-1].Why == redelivery.LostConsumer }, 5*time.Second, time.Millisecond)
	for _, e := range l.all()[:len(l.all())-1] { // the Consumer may give up before the observer is called
		require.Equal(t, redelivery.Lost{Subscription: testkit.Subscription, Why: redelivery.LostConnection}, e)
	}
}
