package suite

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// heap returns how many bytes are alive.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// One message of each batch waits, and keeps the whole batch alive: the limit is for what is kept, and a batch counts
// once however many of its messages wait.
func TestHeldBatchesAreCountedWhole(t *testing.T) {
	const batches, messages, size = 100, 100, 10_000
	const all = batches * messages * size // bytes
	for _, limit := range []int64{1 << 20, 1 << 30} {
		for _, waiting := range []int{1, 3} {
			for _, again := range []bool{false, true} {
				t.Run(fmt.Sprintf("limit %d MiB, %d of each wait, sent again=%t", limit>>20, waiting, again), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						before := heapInUse()
						c, s := testkit.NewStandIn(t, pulsar.ConsumerOptions{Type: pulsar.KeyShared},
							redelivery.WithNackRedeliveryDelay(time.Hour), redelivery.WithMemoryLimit(limit))
						for entry := range int64(batches) {
							s.Publish(testkit.EntryBatch(entry, messages, size)...)
							for i := range messages {
								msg := testkit.Receive(t, c)
								if i >= waiting {
									require.NoError(t, c.Ack(msg))
								} else if again {
									c.NackID(msg.ID())
								} else {
									c.Nack(msg)
								}
							}
							s.Truncate()
						}
						if again {
							s.Reconnect(func(testkit.Position) bool { return false })
							for entry := range int64(batches) {
								s.Publish(testkit.EntryBatch(entry, messages, size)...)
								testkit.ReceiveNothing(t, c, 5*time.Millisecond)
								s.Truncate()
							}
							testkit.ReceiveNothing(t, c, 100*time.Millisecond)
						}
						kept, held := heapInUse()-before, c.Stats().BufferedBytes
						t.Logf("%d KiB are alive, %d KiB count as held", kept>>10, held>>10)
						require.Equal(t, batches*waiting, c.Stats().Waiting)
						require.LessOrEqual(t, held, limit)
						require.Less(t, kept, held+16<<20, "more is kept alive than is counted")
						if limit > all {
							require.Greater(t, held, int64(all*9/10))
							require.Less(t, held, int64(all*3/2), "batches are counted more than once")
						}
					})
				})
			}
		}
	}
}

// The same with batches as pulsar-client-go makes them.
func TestHeldBatchesOfABrokerAreCountedWhole(t *testing.T) {
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
		require.Eventually(t, func() bool { held = c.Stats().BufferedBytes; return held > all*9/10 }, testkit.Patience, 10*time.Millisecond)
		t.Logf("%d KiB count as held", held>>10)
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
