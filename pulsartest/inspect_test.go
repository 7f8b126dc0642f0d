package pulsartest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

func TestSubscriptionCountsAllPartitions(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	require.Zero(t, s.Subscription("t", "s"))
	require.NoError(t, s.CreatePartitionedTopic("t", 2))
	c := newClient(t, s.URL())
	k := subscribe(t, c, pulsar.ConsumerOptions{Topic: "t", SubscriptionName: "s", Type: pulsar.Shared, Name: "me",
		NackRedeliveryDelay: 20 * time.Millisecond})
	p := newProducer(t, c, pulsar.ProducerOptions{Topic: "t", DisableBatching: true})
	for i := range 6 {
		_, err := p.Send(context.Background(), &pulsar.ProducerMessage{Payload: fmt.Append(nil, i), Key: fmt.Sprint(i)})
		require.NoError(t, err)
	}
	_, err := p.Send(context.Background(), &pulsar.ProducerMessage{DeliverAfter: time.Hour})
	require.NoError(t, err)
	for range 6 {
		receive(t, k)
	}
	sub := s.Subscription("t", "s")
	require.Equal(t, "Shared", sub.Type)
	require.Equal(t, 7, sub.Backlog)
	require.Equal(t, 6, sub.Unacked)
	require.Equal(t, 6, sub.Delivered)
	require.Equal(t, 1, sub.Delayed)
	require.Len(t, sub.Consumers, 2, "the consumers are not as many as the partitions")
	require.Equal(t, "me", sub.Consumers[0].Name)
	require.Equal(t, "persistent://public/default/t-partition-0", sub.Consumers[0].Topic)
	require.Equal(t, 6, sub.Consumers[0].Delivered+sub.Consumers[1].Delivered)
	require.Empty(t, sub.RedeliveryCounts)
	require.Equal(t, []string{"s"}, s.Subscriptions("t"))
	require.Equal(t, []string{sub.Consumers[0].Topic, sub.Consumers[1].Topic}, s.Topics())

	s.Unload("t")
	for range 2 { // each message comes after the unload with count 0, and again after the nack
		for range 6 {
			k.Nack(receive(t, k))
		}
	}
	require.Eventually(t, func() bool { return len(s.Subscription("t", "s").RedeliveryCounts) == 6 }, 5*time.Second,
		time.Millisecond)
	for id, count := range s.Subscription("t-partition-1", "s").RedeliveryCounts {
		require.Equal(t, 1, id.Partition)
		require.Positive(t, count)
	}
}

func TestCreatePartitionedTopicMayRaiseButNotLowerThePartitions(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	require.NoError(t, s.CreatePartitionedTopic("t", 2))
	require.NoError(t, s.CreatePartitionedTopic("persistent://public/default/t", 3))
	require.Len(t, s.Topics(), 3)
	require.ErrorContains(t, s.CreatePartitionedTopic("t", 2), "2 partitions for persistent://public/default/t")
	require.Error(t, s.CreatePartitionedTopic("t2", 0))
	require.Error(t, s.CreatePartitionedTopic("t2-partition-0", 1))
	require.Error(t, s.CreatePartitionedTopic("a/b", 1))
	c := newClient(t, s.URL())
	partitions, err := c.TopicPartitions("t")
	require.NoError(t, err)
	require.Len(t, partitions, 3)
}

func TestMessagesUnpacksBatchesAndDecompresses(t *testing.T) {
	event := time.UnixMilli(1_700_000_000_000)
	for _, codec := range []pulsar.CompressionType{pulsar.NoCompression, pulsar.LZ4, pulsar.ZLib, pulsar.ZSTD} {
		for _, batched := range []bool{false, true} {
			t.Run(fmt.Sprint(codec, batched), func(t *testing.T) {
				s := NewServer(t)
				p := newProducer(t, newClient(t, s.URL()),
					pulsar.ProducerOptions{Topic: "t", Name: "p", CompressionType: codec,
						DisableBatching: !batched, BatchingMaxPublishDelay: time.Minute})
				for i := range 3 {
					p.SendAsync(context.Background(),
						&pulsar.ProducerMessage{Payload: []byte(strings.Repeat(fmt.Sprint(i), 100)),
							Key: "key", OrderingKey: "ordering", EventTime: event,
							Properties: map[string]string{"a": "b"}},
						nil)
				}
				require.NoError(t, p.FlushWithCtx(context.Background()))
				all := s.Messages("t")
				if codec == pulsar.ZSTD { // an entry that cannot be decompressed is one Message
					require.True(t, all[0].Opaque)
					return
				}
				require.Len(t, all, 3)
				for i, m := range all {
					require.Equal(t, strings.Repeat(fmt.Sprint(i), 100), string(m.Payload))
					require.Equal(t, "key", m.Key)
					require.Equal(t, "ordering", string(m.OrderingKey))
					require.Equal(t, map[string]string{"a": "b"}, m.Properties)
					require.True(t, event.Equal(m.EventTime))
					require.WithinDuration(t, time.Now(), m.PublishTime, time.Minute)
					require.Zero(t, m.DeliverAt)
					require.Equal(t, "p", m.Producer)
					require.EqualValues(t, i, m.SequenceID)
					require.False(t, m.Opaque)
					if batched {
						require.Equal(t, i, m.ID.BatchIndex)
						require.Equal(t, 3, m.BatchSize)
					} else {
						require.EqualValues(t, i, m.ID.Entry)
						require.Equal(t, -1, m.ID.BatchIndex)
					}
				}
			})
		}
	}
}
