package nack

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// Acknowledgements of other messages of the topic stay effective.
func TestNackIDBeforeFirstReceiveSparesOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, inner := testkit.SubscribeFake(t, pulsar.Exclusive, redelivery.WithNackRedeliveryDelay(time.Second))
		c.NackID(pulsar.NewMessageID(1, 1, 0, 0))
		zz := testkit.Message{MessageID: pulsar.NewMessageID(1, 2, 0, 0), TopicName: "t"}
		inner.Queue <- pulsar.ConsumerMessage{Consumer: inner, Message: zz}
		msg := testkit.Receive(t, c)
		c.Nack(msg)
		require.NoError(t, c.AckID(pulsar.NewMessageID(1, 2, 0, 0)))
		_, err := testkit.ReceiveWithin(c, time.Minute)
		if err == nil {
			t.Error("a message came after AckID returned nil")
		}
	})
}

// The application nacks an earlier delivery from Chan, by its ConsumerMessage or by the Message in it.
func TestStaleNackOfConsumerMessageIsIgnored(t *testing.T) {
	for _, whole := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c, inner := testkit.SubscribeFake(t, pulsar.Shared, redelivery.WithNackRedeliveryDelay(time.Second))
			inner.Deliver(1)
			var first pulsar.Message
			cm := <-c.Chan()
			first = cm.Message
			if whole {
				first = cm
			}
			c.Nack(first)
			<-c.Chan()
			c.Nack(first) // stale
			require.Zero(t, c.Stats().Waiting)
		})
	}
}

// nothingWrapped is a wrapper whose embedded pointer is nil.
type nothingBase struct{ pulsar.Message }
type nothingWrapped struct {
	*nothingBase // nil
	id           pulsar.MessageID
}

func (w nothingWrapped) ID() pulsar.MessageID { return w.id }

func TestNackOfEmptyWrapperDoesNotPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, inner := testkit.SubscribeFake(t, pulsar.Exclusive, redelivery.WithNackRedeliveryDelay(time.Second),
			redelivery.WithMemoryLimit(0))
		id := inner.Deliver(1)
		testkit.Receive(t, c)
		c.Nack(nothingWrapped{id: id}) // does not panic
	})
}

func TestDeadLetterOfEmptyWrapperIsRefused(t *testing.T) {
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
	topic := b.NewTopic(0)
	b.Send(topic, 1, false)
	c := b.Subscribe(b.RetryOptions(topic, 5), redelivery.WithMemoryLimit(0),
		redelivery.WithNackRedeliveryDelay(100*time.Millisecond))
	m := testkit.Receive(t, c)
	require.ErrorContains(t, c.DeadLetter(context.Background(), nothingWrapped{id: m.ID()}, nil),
		"pass the message that Receive returned")
	c.Nack(m)
	_, err := testkit.ReceiveWithin(c, 10*time.Second)
	require.NoError(t, err)
}
