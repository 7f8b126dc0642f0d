package deadletter_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
)

// deleteTopic deletes a topic while consumers and readers are connected.
func (b *broker) deleteTopic(topic string) {
	b.callAdmin("DELETE", strings.Replace(topic, "://", "/", 1)+"?force=true", nil, nil)
}

func TestPeekOfATopicThatIsDeletedMeanwhileReturnsAnError(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(2000)...)
	n, failed := 0, error(nil)
	for _, err := range b.open(tp.dlq).Peek(bg, 0) {
		if failed = err; err == nil {
			n++
		}
		if n == 10 {
			b.deleteTopic(tp.dlq)
		}
	}
	require.Less(t, n, 2000)
	require.Error(t, failed)
}

func TestReplayOfATopicThatIsDeletedMeanwhileReturnsAnError(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(2000)...)
	var once sync.Once
	report, err := b.open(tp.dlq).Replay(bg, deadletter.ReplayOptions{Rate: 2000, Progress: func(deadletter.Report) {
		once.Do(func() { b.deleteTopic(tp.dlq) })
	}})
	require.Less(t, report.Done, 2000)
	require.Error(t, err)
}
