package ack

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// A bad message or id causes an error, or a warning that Stats.Failed counts, but no panic.
func TestBadMessagesAndIDsAreRefused(t *testing.T) {
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
		assert.ErrorContains(t, c.Ack(idless), "want") // now that the inner consumer has delivered a message of this type
		c.ReconsumeLater(msg, 0)                       // there is no retry topic: the message is nacked
		assert.Contains(t, log.String(), redelivery.ErrNoRetryTopic.Error())
		assert.Equal(t, 1, c.Stats().Waiting)
	})
}

func TestForeignIDOfKnownMessageSettlesIt(t *testing.T) {
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
		id := inner.Deliver(1)
		testkit.Receive(t, c)
		c.Nack(testkit.Message{MessageID: foreignID{pulsar.NewMessageID(1, 1, 0, 0)}})
		require.Equal(t, 1, c.Stats().Waiting)
		require.NoError(t, c.AckID(foreignID{id}))
		require.Equal(t, []pulsar.MessageID{id}, inner.Acks())
	})
}

func TestNackIDOfUnknownMessageWaitsByPolicy(t *testing.T) {
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
		c.NackID(pulsar.NewMessageID(3, 3, 0, 0))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, inner.Requests(), 1, "the message was not requested exactly once")
		inner.Deliver(3)
		time.Sleep(time.Hour)
		require.Zero(t, c.Stats().Failed)
	})
}

// foreignID is an application's own type of message id.
type foreignID struct{ pulsar.MessageID }

// The bytes of an id may be forged and name a batch of enormous size, for which the Consumer must not take memory.
func TestIDOfHugeBatchIsRefused(t *testing.T) {
	var data []byte
	for field, v := range map[protowire.Number]uint64{1: 1, 2: 1, 4: 0, 6: 1<<31 - 1} {
		data = protowire.AppendVarint(protowire.AppendTag(data, field, protowire.VarintType), v)
	}
	id, err := pulsar.DeserializeMessageID(data)
	require.NoError(t, err)
	c, _ := testkit.NewStandIn(t, pulsar.ConsumerOptions{Type: pulsar.Shared})
	c.NackID(id)
	require.EqualValues(t, 1, c.Stats().Failed)
}

// incomparable is an id that cannot be a key of a map.
type incomparable struct {
	pulsar.MessageID
	_ []byte
}

func TestIncomparableIDIsRefusedInLists(t *testing.T) {
	c, s := testkit.NewStandIn(t, pulsar.ConsumerOptions{Type: pulsar.Shared})
	s.Publish(testkit.Entries(1)...)
	id := incomparable{MessageID: testkit.Receive(t, c).ID()}
	require.ErrorContains(t, c.AckIDList([]pulsar.MessageID{id, id}),
		"incomparable, only comparable ids are accepted, such as those of pulsar-client-go (1 of 2)")
	require.NoError(t, c.AckID(id))
}

// The Consumer finds the partition of an id, even of one that was read from bytes.
func TestIDOfForgottenMessageIsFoundInItsPartition(t *testing.T) {
	t.Parallel()
	t.Run("cumulative", func(t *testing.T) {
		t.Parallel()
		b := testkit.NewBroker(t)
		topic := b.NewTopic(2)
		c := b.Subscribe(b.Options(topic, pulsar.Failover), redelivery.WithNackRedeliveryDelay(12*time.Second))
		b.Send(topic, 10, false)
		last := map[int32]pulsar.MessageID{}
		for range 10 {
			msg := testkit.Receive(t, c)
			if partition := msg.ID().PartitionIdx(); last[partition] == nil {
				last[partition] = msg.ID()
				c.Nack(msg)
			} else {
				last[partition] = msg.ID()
				require.NoError(t, c.Ack(msg))
			}
		}
		testkit.ReceiveNothing(t, c, 6*time.Second) // until the Consumer has forgotten the messages
		for _, id := range last {
			require.NoError(t, c.AckIDCumulative(id))
		}
		require.Zero(t, c.Stats().Waiting)
		b.Settles(topic, 2)
	})
	t.Run("from bytes", func(t *testing.T) {
		t.Parallel()
		b := testkit.NewBroker(t)
		topic := b.NewTopic(2)
		c := b.Subscribe(b.Options(topic, pulsar.KeyShared), redelivery.WithNackRedeliveryDelay(4*time.Second))
		b.Send(topic, 8, false)
		var msgs []pulsar.Message
		for range 8 {
			msgs = append(msgs, testkit.Receive(t, c))
		}
		for _, msg := range msgs[:6] {
			require.NoError(t, c.Ack(msg))
		}
		time.Sleep(6 * time.Second) // until the Consumer has forgotten the messages
		for _, msg := range msgs[:6] {
			c.NackID(msg.ID())
		}
		for _, msg := range msgs[6:] {
			c.Nack(msg)
			id, err := pulsar.DeserializeMessageID(msg.ID().Serialize())
			require.NoError(t, err)
			require.NoError(t, c.AckID(id))
		}
		testkit.ReceiveNothing(t, c, 6*time.Second)
	})
}

// A message and its shadow have the same id, but are two messages.
func TestShadowTopicIsNotItsSource(t *testing.T) {
	t.Parallel()
	testkit.NeedsRealBroker(t, "shadow topics")
	const n = 20
	for kind := range testkit.SubscriptionTypes {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBroker(t)
			source := b.NewTopic(0)
			shadow := b.Shadow(source)
			opts := b.Options(source, testkit.SubscriptionTypes[kind])
			opts.Topic, opts.Topics = "", []string{source, shadow}
			opts.ReceiverQueueSize = 5 // so that neither topic waits until the other's messages are handled
			c := b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(300*time.Millisecond))
			b.Send(source, n, false)
			failed, acked := map[string]bool{}, map[string]int{}
			handle := func(msg pulsar.Message) {
				which := msg.Topic() + " " + testkit.Name(msg)
				if !failed[which] && len(failed) < n {
					failed[which] = true
					c.Nack(msg)
					return
				}
				require.NoError(t, c.Ack(msg))
				acked[which]++
			}
			for len(acked) < 2*n {
				handle(testkit.Receive(t, c))
			}
			testkit.Drain(t, c, time.Second, handle)
			for which, times := range acked {
				require.Equal(t, 1, times, which)
			}
			b.Settles(source, 0)
			b.Settles(shadow, 0)
		})
	}
}

// An id may be forged and have a huge batch index. NackID of such an id allocates little memory.
func TestNackIDOfHugeBatchIndexIsCheap(t *testing.T) {
	c, _ := testkit.NewStandIn(t, pulsar.ConsumerOptions{Type: pulsar.Shared})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c.NackID(pulsar.NewMessageID(1, 1, 1<<24, 0))
	runtime.ReadMemStats(&after)
	allocated := (after.TotalAlloc - before.TotalAlloc) >> 20
	require.Less(t, allocated, uint64(16), "MiB")
}

// Ledger ids are unique in a topic, but not in a cluster: a shadow topic has the ledger ids of its source.
func TestEqualIDsOfTwoTopicsAreTwoMessages(t *testing.T) {
	for name, kind := range testkit.SubscriptionTypes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 5
				c, s := testkit.NewStandIn(t, pulsar.ConsumerOptions{Type: kind},
					redelivery.WithNackRedeliveryDelay(time.Second))
				publish := func(topic string, from int64) {
					for i := range int64(n) {
						s.Publish(testkit.Entry(topic, from+i))
					}
				}
				take := func(n int, topic string) (msgs []pulsar.Message) {
					t.Helper()
					for range n {
						msg := testkit.Receive(t, c)
						require.Contains(t, topic, msg.Topic())
						msgs = append(msgs, msg)
					}
					return msgs
				}
				publish("a", 0)
				for _, msg := range take(n, "a") {
					c.Nack(msg)
				}
				for _, msg := range take(n, "a") {
					require.EqualValues(t, 1, c.RedeliveryCount(msg))
					require.NoError(t, c.Ack(msg))
				}
				publish("b", 0)
				all := take(n, "b")
				publish("a", n)
				publish("b", n)
				all = append(all, take(2*n, "ab")...)
				for _, msg := range all {
					require.Zero(t, c.RedeliveryCount(msg))
					require.NoError(t, c.Ack(msg))
				}
				testkit.ReceiveNothing(t, c, time.Minute)
			})
		})
	}
}

// AckIDList of pulsar-client-go returns nil if it does not find the consumer of an id, or if that consumer is closed and
// AckWithResponse is off.
func TestAckIDListReportsEachMessageThatWasNotAcknowledged(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{false, true} {
		t.Run(fmt.Sprint("AckWithResponse=", answered), func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBroker(t)
			one, other := b.NewTopic(0), b.NewTopic(0)
			opts := b.Options("", pulsar.Shared)
			opts.Topics, opts.AckWithResponse = []string{one, other}, answered
			c := b.Subscribe(opts)
			b.Send(one, 2, false)
			first, second := testkit.Receive(t, c), testkit.Receive(t, c)
			unknown, err := pulsar.DeserializeMessageID(first.ID().Serialize())
			require.NoError(t, err)
			require.NoError(t, c.Ack(first))
			foreign := pulsar.NewMessageID(1<<40, 1, -1, 0)
			var failed pulsar.AckError
			require.ErrorAs(t, c.AckIDList([]pulsar.MessageID{unknown, foreign}), &failed)
			require.Len(t, failed, 1)
			require.Error(t, failed[foreign])

			require.NoError(t, c.GiveBack())
			require.Error(t, c.Ack(second))
			require.ErrorAs(t, c.AckIDList([]pulsar.MessageID{first.ID(), second.ID()}), &failed)
			require.Error(t, failed[second.ID()])
			msg := testkit.Receive(t, c)
			require.Equal(t, second.ID().Serialize(), msg.ID().Serialize())
			require.NoError(t, c.AckIDList([]pulsar.MessageID{msg.ID()}))
		})
	}
}

// pulsar-client-go would acknowledge the whole batch, and the messages that nobody has handled would be lost.
func TestStoredIDOfABatchAcknowledgesNothing(t *testing.T) {
	t.Parallel()
	testkit.Each(t, testkit.SubscriptionTypes, func(t *testing.T, kind pulsar.SubscriptionType) {
		b := testkit.NewBroker(t)
		topic := b.NewTopic(0)
		first := b.Subscribe(b.Options(topic, kind))
		b.Send(topic, 3, true)
		id, err := pulsar.DeserializeMessageID(testkit.Receive(t, first).ID().Serialize())
		require.NoError(t, err)
		require.EqualValues(t, 3, id.BatchSize())
		first.Close()
		c := b.Subscribe(b.Options(topic, kind), redelivery.WithNackRedeliveryDelay(time.Millisecond))
		for _, id := range []pulsar.MessageID{id, pulsar.NewMessageID(id.LedgerID(), id.EntryID(), 1, -1)} {
			require.ErrorContains(t, c.AckID(id), "is of a batch and did not come with a message")
			require.ErrorContains(t, c.AckIDList([]pulsar.MessageID{id}), "is of a batch")
			if kind == pulsar.Exclusive || kind == pulsar.Failover {
				require.ErrorContains(t, c.AckIDCumulative(id), "is of a batch")
			}
			c.NackID(id)
			require.Error(t, c.AckID(id))
		}
		seen := map[int32]bool{}
		for len(seen) < 3 {
			msg := testkit.Receive(t, c)
			seen[msg.ID().BatchIdx()] = true
			require.NoError(t, c.Ack(msg))
		}
		b.Settles(topic, 0)
	})
}
