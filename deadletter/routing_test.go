package deadletter_test

import (
	"fmt"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
)

// partitionsOf returns the partition of each letter in a topic, by the letter's number.
func (b *broker) partitionsOf(topic string, n int) map[string]int {
	all := map[string]int{}
	for i := range n {
		for _, msg := range b.receive(fmt.Sprintf("%s-partition-%d", topic, i)) {
			all[msg.Properties()["number"]] = i
		}
	}
	return all
}

// It does not matter which hash the topic's producers use.
func TestLetterGoesBackToItsPartition(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(3)
	letters := tp.letters(12)
	want := map[string]int{}
	for i, l := range letters {
		l.Key = fmt.Sprint("Schlüssel ", i)
		want[fmt.Sprint(i)] = (i * 7 / 2) % 3
		switch i % 4 {
		case 0: // this library
			l.Properties["ORIGIN_TOPIC"] = fmt.Sprintf("%s-partition-%d", tp.origin, want[fmt.Sprint(i)])
		case 1: // Java's nacked dead letters
			l.Properties["REAL_TOPIC"] = fmt.Sprintf("%s-partition-%d", tp.origin, want[fmt.Sprint(i)])
		case 2: // retries
			l.Properties["ORIGIN_MESSAGE_ID"] = fmt.Sprintf("7:%d:%d", i, want[fmt.Sprint(i)])
		case 3: // of a batch
			l.Properties["ORIGIN_MESSAGE_ID"] = fmt.Sprintf("7:%d:%d:5", i, want[fmt.Sprint(i)])
		}
	}
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, letters...)
	report, err := b.open(tp.dlq).Replay(bg, deadletter.ReplayOptions{ToOrigin: true})
	require.NoError(t, err)
	require.Equal(t, 12, report.Done)
	require.Equal(t, want, b.partitionsOf(tp.origin, 3))
}

// The letters name no partition, or one that does not exist. The default chooses as Java's producers do.
func TestRoutingChoosesThePartitionByTheKey(t *testing.T) {
	t.Parallel()
	keys := []string{"customer-7", "Schlüssel", "日本語", "a", "polygenelubricants"}
	for routing, want := range map[deadletter.Routing][]int{
		deadletter.SamePartition:  {3, 6, 5, 6, 0},
		deadletter.JavaStringHash: {3, 6, 5, 6, 0},
		deadletter.Murmur3Hash:    {1, 1, 6, 4, 3},
		deadletter.GoStringHash:   {5, 2, 4, 6, 2},
	} {
		t.Run(string(routing), func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			tp := b.topics(7)
			letters := tp.letters(len(keys))
			for i, l := range letters {
				l.Key = keys[i]
				l.Properties["ORIGIN_MESSAGE_ID"] = fmt.Sprintf("7:%d:%d", i, []int{-1, 7}[i%2])
			}
			b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, letters...)
			_, err := b.open(tp.dlq).Replay(bg, deadletter.ReplayOptions{ToOrigin: true, Routing: routing})
			require.NoError(t, err)
			got := b.partitionsOf(tp.origin, 7)
			for i := range want {
				assert.Equal(t, want[i], got[fmt.Sprint(i)], keys[i])
			}
		})
	}
}
