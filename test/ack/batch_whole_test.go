package ack

import (
	"fmt"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// wholeOf returns the id of a message's batch.
func wholeOf(id pulsar.MessageID) pulsar.MessageID {
	return pulsar.NewMessageID(id.LedgerID(), id.EntryID(), -1, id.PartitionIdx())
}

// staysSettled checks that all messages are settled and that none comes again.
func staysSettled(t *testing.T, b *testkit.Broker, c *redelivery.Consumer, topic string) {
	b.Settles(topic, 0)
	testkit.ReceiveNothing(t, c, 2*time.Second)
	require.Zero(t, c.Stats().Waiting)
}

var ackByID = map[string]func(*redelivery.Consumer, pulsar.MessageID) error{
	"AckID":           (*redelivery.Consumer).AckID,
	"AckIDCumulative": (*redelivery.Consumer).AckIDCumulative,
	"AckIDList": func(c *redelivery.Consumer, id pulsar.MessageID) error {
		return c.AckIDList([]pulsar.MessageID{id})
	},
}

// An application may make the id of a whole batch. The messages of the batch are in all possible states.
func TestAckOfBatchIDSettlesAllMessages(t *testing.T) {
	t.Parallel()
	for name, ack := range ackByID {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			c := b.Subscribe(b.Options(topic, pulsar.Exclusive), redelivery.WithNackRedeliveryDelay(time.Second))
			b.Send(topic, 3, true)
			id := testkit.Receive(t, c).ID()
			c.Nack(testkit.Receive(t, c))
			testkit.Receive(t, c)
			require.NoError(t, ack(c, wholeOf(id)))
			staysSettled(t, b, c, topic)
		})
	}
}

// An acknowledgement of a batch's id settles the batch even if its first message was acknowledged before and never came
// to this consumer.
func TestAckOfBatchIDWithoutFirstMessageSettlesTheRest(t *testing.T) {
	t.Parallel()
	for name, ack := range ackByID {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{}, pulsartest.WithBatchIndexAcknowledgment())
			topic := b.NewTopic(0)
			opts := b.Options(topic, pulsar.Exclusive)
			opts.EnableBatchIndexAcknowledgment, opts.AckWithResponse = true, true
			first := b.Subscribe(opts)
			b.Send(topic, 4, true)
			require.NoError(t, first.Ack(testkit.Receive(t, first)))
			first.Close()
			c := b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(time.Second))
			var id pulsar.MessageID
			for range 3 {
				msg := testkit.Receive(t, c)
				id = msg.ID()
				c.Nack(msg)
			}
			require.NoError(t, ack(c, wholeOf(id)))
			staysSettled(t, b, c, topic)
		})
	}
}

// NackID of a batch's id nacks the messages of the batch that the application has.
func TestNackOfBatchIDRedeliversAllMessages(t *testing.T) {
	t.Parallel()
	for _, acked := range []int{0, 1} {
		t.Run(fmt.Sprint("acknowledged: ", acked), func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			c := b.Subscribe(b.Options(topic, pulsar.Shared), redelivery.WithNackRedeliveryDelay(500*time.Millisecond))
			b.Send(topic, 4, true)
			var want, got []string
			var whole pulsar.MessageID
			for i := range 4 {
				msg := testkit.Receive(t, c)
				if i < acked {
					require.NoError(t, c.Ack(msg))
				} else {
					want = append(want, string(msg.Payload()))
				}
				whole = wholeOf(msg.ID())
			}
			c.NackID(whole)
			c.NackID(whole) // the application now has no message of the batch
			for range want {
				msg := testkit.Receive(t, c)
				require.EqualValues(t, 1, msg.RedeliveryCount())
				got = append(got, string(msg.Payload()))
				require.NoError(t, c.Ack(msg))
			}
			require.ElementsMatch(t, want, got)
			b.Settles(topic, 0)
			testkit.ReceiveNothing(t, c, time.Second)
			require.Zero(t, c.Stats().Failed)
		})
	}
}
