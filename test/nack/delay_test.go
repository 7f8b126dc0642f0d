package nack

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

func TestDelaysAreExact(t *testing.T) {
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
		start := time.Now()
		for n, count := range []uint32{5, 0} {
			id := pulsar.NewMessageID(1, int64(n), 0, 0)
			inner.Channel <- pulsar.ConsumerMessage{Consumer: inner,
				Message: testkit.Message{MessageID: id, Count: count}}
			msg := testkit.Receive(t, c)
			require.Equal(t, count, c.RedeliveryCount(msg))
			c.Nack(msg)
			c.Nack(msg) // a second nack changes nothing
		}
		assert.Equal(t, 2, c.Stats().Waiting)
		time.Sleep(100*time.Millisecond - 1)
		synctest.Wait()
		require.Empty(t, inner.Requests())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Len(t, inner.Requests(), 1)
		require.EqualValues(t, 1, inner.Requests()[0].EntryID())
		time.Sleep(3200*time.Millisecond - 1 - time.Since(start))
		synctest.Wait()
		require.Len(t, inner.Requests(), 1)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Len(t, inner.Requests(), 2)
	}, redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: 100 * time.Millisecond, Max: time.Minute,
		Multiplier: 2}), testkit.FromBroker)
}

func TestEarlyCopyIsHeldUntilDue(t *testing.T) {
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
		inner.Deliver(1)
		start := time.Now()
		old := testkit.Receive(t, c)
		c.Nack(old)
		newest := inner.Deliver(1) // a new copy, as after an unload
		msg, err := c.Receive(context.Background())
		require.NoError(t, err)
		require.Equal(t, time.Minute, time.Since(start))
		require.EqualValues(t, 1, c.RedeliveryCount(msg))
		require.Empty(t, inner.Requests(), "the Consumer requested a message that was in memory")
		require.EqualValues(t, 1, c.Stats().Buffered)
		require.NoError(t, c.Ack(old))
		require.Equal(t, []pulsar.MessageID{newest}, inner.Acks(), "the ack does not have the newest delivery's id")
	})
}

// When the message is due, it comes from memory, or the Consumer requests it from the broker.
func TestNackedMessageWaitsInMemoryOrAtTheBroker(t *testing.T) {
	const memory, broker = true, false
	for name, test := range map[string]struct {
		kind    pulsar.SubscriptionType
		options []redelivery.Option
		batch   int32
		want    bool
	}{
		"Exclusive":              {pulsar.Exclusive, nil, 0, memory},
		"Failover":               {pulsar.Failover, nil, 0, memory},
		"Key_Shared":             {pulsar.KeyShared, nil, 0, memory},
		"Shared":                 {pulsar.Shared, nil, 0, memory},
		"Shared, from broker":    {pulsar.Shared, []redelivery.Option{redelivery.WithRedeliveryFrom(redelivery.FromBroker)}, 0, broker},
		"Shared, batch":          {pulsar.Shared, nil, 3, memory},
		"Shared, from memory":    {pulsar.Shared, []redelivery.Option{redelivery.WithRedeliveryFrom(redelivery.FromMemory)}, 0, memory},
		"Exclusive, from broker": {pulsar.Exclusive, []redelivery.Option{redelivery.WithRedeliveryFrom(redelivery.FromBroker)}, 0, broker},
		"holds nothing":          {pulsar.Exclusive, []redelivery.Option{redelivery.WithMemoryLimit(0)}, 0, broker},
		"does not fit":           {pulsar.KeyShared, []redelivery.Option{redelivery.WithMemoryLimit(500)}, 0, broker},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, inner := testkit.SubscribeFake(t, test.kind, test.options...)
				inner.DeliverBatch(1, test.batch)
				msg, start := testkit.Receive(t, c), time.Now()
				require.NoError(t, c.NackWithDelay(msg, 500*time.Millisecond))
				if test.want == broker {
					for len(inner.Requests()) == 0 {
						time.Sleep(time.Millisecond)
					}
					require.Equal(t, 500*time.Millisecond, time.Since(start).Truncate(5*time.Millisecond))
					inner.DeliverBatch(1, test.batch)
				}
				again := testkit.Receive(t, c)
				require.Equal(t, 500*time.Millisecond, time.Since(start).Truncate(5*time.Millisecond))
				require.EqualValues(t, 1, again.RedeliveryCount())
				c.Nack(msg) // this nack of the first delivery is too late
				require.Zero(t, c.Stats().Waiting)
				require.NoError(t, c.Ack(again))
				time.Sleep(time.Hour)
				require.Len(t, inner.Requests(), map[bool]int{memory: 0, broker: 1}[test.want])
				require.Zero(t, c.Stats().BufferedBytes)
			})
		})
	}
}

// Late counts redeliveries that were late, but not those that waited for the application.
func TestLateStatIgnoresSlowApplication(t *testing.T) {
	t.Parallel()
	for kind := range testkit.SubscriptionTypes {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			b.Send(topic, 5, false)
			c := b.Subscribe(b.Options(topic, testkit.SubscriptionTypes[kind]),
				redelivery.WithNackRedeliveryDelay(300*time.Millisecond))
			for range 5 {
				c.NackID(testkit.Receive(t, c).ID())
			}
			time.Sleep(3 * time.Second) // all messages are received long before
			for range 5 {
				require.NoError(t, c.Ack(testkit.Receive(t, c)))
			}
			require.Zero(t, c.Stats().Late)
		})
	}
}

// Half of the messages are in one batch.
func TestRedeliverNowDeliversWaitingMessages(t *testing.T) {
	t.Parallel()
	testkit.Each(t, testkit.SubscriptionTypes, func(t *testing.T, kind pulsar.SubscriptionType) {
		for name, options := range map[string][]redelivery.Option{
			"from memory": nil, "beyond the memory limit": {redelivery.WithMemoryLimit(0)}, "from the broker": {redelivery.WithRedeliveryFrom(redelivery.FromBroker)},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := testkit.NewBroker(t)
				topic := b.NewTopic(0)
				c := b.Subscribe(b.Options(topic, kind),
					append(options, redelivery.WithNackRedeliveryDelay(time.Hour))...)
				b.Send(topic, 5, false)
				b.Send(topic, 5, true)
				for range 10 {
					c.Nack(testkit.Receive(t, c))
				}
				require.Zero(t, c.Stats().Ready)
				require.Equal(t, 10, c.RedeliverNow())
				for range 10 {
					msg := testkit.Receive(t, c)
					require.EqualValues(t, 1, c.RedeliveryCount(msg))
					require.NoError(t, c.Ack(msg))
				}
				require.Zero(t, c.RedeliverNow())
				b.Settles(topic, 0)
			})
		}
	})
}
