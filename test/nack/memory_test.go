package nack

import (
	"bytes"
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// A waiting message keeps its whole batch in memory. So the whole batch counts towards the limit. It counts once,
// however many of its messages wait.
func TestMemoryLimitCountsWaitingBatchWhole(t *testing.T) {
	t.Parallel()
	const batches, messages, size = 20, 50, 10_000
	const all = batches * messages * size // bytes
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	p, err := b.Client.CreateProducer(pulsar.ProducerOptions{
		Topic: topic, BatchingMaxMessages: messages, BatchingMaxSize: 1 << 20, BatchingMaxPublishDelay: time.Minute,
	})
	require.NoError(t, err)
	for range batches * messages {
		p.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: make([]byte, size)}, nil)
	}
	require.NoError(t, p.FlushWithCtx(context.Background()))
	p.Close()
	c := b.Subscribe(b.Options(topic, pulsar.KeyShared), redelivery.WithNackRedeliveryDelay(time.Hour))
	held := func() {
		t.Helper()
		var held int64
		require.Eventually(t, func() bool { held = c.Stats().BufferedBytes; return held > all*9/10 }, testkit.Patience,
			10*time.Millisecond)
		t.Logf("BufferedBytes is %d KiB", held>>10)
		require.Less(t, held, int64(all*3/2))
	}
	for range batches * messages {
		if msg := testkit.Receive(t, c); msg.ID().BatchIdx() == messages/2 {
			c.Nack(msg)
		} else {
			require.NoError(t, c.Ack(msg))
		}
	}
	held()
	b.Unload(topic)
	testkit.ReceiveNothing(t, c, 2*time.Second)
	held()
}

func TestMemoryDoesNotGrowWithHandledMessages(t *testing.T) {
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, f *testkit.Fake, _ *bytes.Buffer) {
		ctx := context.Background()
		next := int64(0)
		take := func(id pulsar.MessageID, count uint32) pulsar.Message {
			f.Channel <- pulsar.ConsumerMessage{Consumer: f, Message: testkit.Message{MessageID: id, Count: count}}
			msg, err := c.Receive(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return msg
		}
		// Of each thousand messages, which take a second, one hundred are nacked and come again.
		work := func(messages int) {
			var nacked []pulsar.MessageID
			for range messages {
				next++
				id := pulsar.NewMessageID(next/50_000, next%50_000, 0, 0)
				msg := take(id, 0)
				if next%10 == 0 {
					if err := c.NackWithDelay(msg, time.Millisecond); err != nil {
						t.Fatal(err)
					}
					nacked = append(nacked, id)
				} else if err := c.AckID(id); err != nil {
					t.Fatal(err)
				}
				if next%1000 == 0 {
					time.Sleep(time.Second)
					for _, id := range nacked {
						if err := c.AckID(take(id, 1).ID()); err != nil {
							t.Fatal(err)
						}
					}
					nacked = nil
				}
			}
			f.Forget()
		}
		heap := func() int64 {
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapInuse)
		}
		work(10_000)
		before := heap()
		rounds := 10
		if *testkit.Long { // with a million messages
			rounds = 100
		}
		for range rounds {
			work(10_000)
		}
		grown := heap() - before
		t.Logf("HeapInuse grew by %d KiB over %d messages", grown>>10, 10_000*rounds)
		require.Less(t, grown, int64(5<<20))
		time.Sleep(time.Minute)
		idle, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		_, err := c.Receive(idle)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, testkit.KnownEntries(c), "settled messages are still known")
		require.Zero(t, c.Stats().Waiting)
	})
}

// tagged is a message whose properties are larger than its payload.
type tagged struct{ testkit.WholeMessage }

func (tagged) Properties() map[string]string {
	return map[string]string{"tag": string(make([]byte, 8<<10))}
}

func TestMemoryLimitCountsProperties(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, limit = 400, 1 << 20
		c, inner := testkit.SubscribeFake(t, pulsar.Shared, redelivery.WithMemoryLimit(limit),
			redelivery.WithNackRedeliveryDelay(time.Hour), testkit.LogTo(t.Output()))
		for i := range int64(n) {
			inner.Queue <- pulsar.ConsumerMessage{Consumer: inner,
				Message: tagged{testkit.WholeMessage{Message: testkit.Message{MessageID: pulsar.NewMessageID(1, i, 0,
					0)}}}}
			c.Nack(testkit.Receive(t, c))
		}
		kept := c.Stats().BufferedBytes
		require.LessOrEqual(t, kept, int64(limit))
		require.Greater(t, kept, int64(limit)/4, "fewer than 32 messages of 8 KiB are kept")
	})
}

// A message's keys stay in memory, so they count like its payload.
func TestMemoryLimitCountsKeys(t *testing.T) {
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	key := strings.Repeat("k", 100_000)
	var msgs []*pulsar.ProducerMessage
	for range 50 {
		msgs = append(msgs, &pulsar.ProducerMessage{Payload: []byte("x"), Key: key},
			&pulsar.ProducerMessage{Payload: []byte("x"), OrderingKey: key})
	}
	b.Publish(pulsar.ProducerOptions{Topic: topic, DisableBatching: true}, msgs...)
	const limit = 1 << 20
	c := b.Subscribe(b.Options(topic, pulsar.Shared), redelivery.WithMemoryLimit(limit),
		redelivery.WithNackRedeliveryDelay(time.Hour))
	for n := range msgs {
		c.Nack(testkit.Receive(t, c))
		if n == 1 {
			require.Greater(t, c.Stats().BufferedBytes, int64(200_000), "the two waiting messages are not counted")
		}
	}
	require.LessOrEqual(t, c.Stats().BufferedBytes, int64(limit))
	require.Equal(t, len(msgs), c.Stats().Waiting)
}
