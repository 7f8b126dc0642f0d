package suite

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// Bad input is answered with an error that names it, or a warning and a count, and never with a panic.
func TestBadMessagesAndIDs(t *testing.T) {
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, log *bytes.Buffer) {
		var (
			nilMsg   pulsar.Message
			empty    = pulsar.ConsumerMessage{}
			idless   = testkit.Message{}
			other    = testkit.Message{MessageID: foreignID{pulsar.NewMessageID(7, 7, 0, 0)}}
			emptyID  = foreignID{}
			foreign  = other.MessageID
			failures uint64
		)
		for _, msg := range []pulsar.Message{nilMsg, empty, &empty, idless} {
			assert.ErrorContains(t, c.Ack(msg), "want")
			assert.ErrorContains(t, c.AckCumulative(msg), "want")
			assert.ErrorContains(t, c.AckWithTxn(msg, nil), "want")
			assert.ErrorContains(t, c.NackWithDelay(msg, 0), "want")
			c.Nack(msg)
			c.ReconsumeLater(msg, 0)
			assert.Zero(t, c.RedeliveryCount(msg))
			failures += 3
			assert.Equal(t, failures, c.Stats().Failed)
		}
		for _, id := range []pulsar.MessageID{nil, emptyID, (*foreignID)(nil)} {
			assert.ErrorContains(t, c.AckID(id), "want")
			assert.ErrorContains(t, c.AckIDCumulative(id), "want")
			assert.ErrorContains(t, c.AckIDList([]pulsar.MessageID{id}), "(1 of 1)")
			assert.ErrorContains(t, c.Seek(id), "want")
			c.NackID(id)
			failures++
			assert.Equal(t, failures, c.Stats().Failed)
		}
		assert.ErrorContains(t, c.NackWithDelay(other, 0), "foreignID")
		assert.ErrorContains(t, c.Seek(foreign), "foreignID")
		c.Nack(other)
		c.NackID(foreign)
		assert.Equal(t, failures+2, c.Stats().Failed)
		assert.Contains(t, log.String(), "redelivery: nack failed")
		assert.Error(t, c.AckWithTxn(other, nil))

		inner.Deliver(1)
		msg := testkit.Receive(t, c)
		assert.ErrorContains(t, c.Ack(idless), "want") // it is of the inner consumer's type now
		c.ReconsumeLater(msg, 0)                       // there is no retry topic: the message is nacked
		assert.Contains(t, log.String(), redelivery.ErrNoRetryTopic.Error())
		assert.Equal(t, 1, c.Stats().Waiting)
	})
}

func TestForeignMessageAndIDOfAKnownMessage(t *testing.T) {
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
		id := inner.Deliver(1)
		testkit.Receive(t, c)
		c.Nack(testkit.Message{MessageID: foreignID{pulsar.NewMessageID(1, 1, 0, 0)}})
		require.Equal(t, 1, c.Stats().Waiting)
		require.NoError(t, c.AckID(foreignID{id}))
		require.Equal(t, []pulsar.MessageID{id}, inner.Acks())
	})
}

func TestNackIDOfAnUnknownMessage(t *testing.T) {
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
		c.NackID(pulsar.NewMessageID(3, 3, 0, 0))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, inner.Requests(), 1, "by the policy, not at once")
		inner.Deliver(3)
		time.Sleep(time.Hour)
		require.Zero(t, c.Stats().Failed)
	})
}
