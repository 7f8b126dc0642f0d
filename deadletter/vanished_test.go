package deadletter_test

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/race"
)

// skipWithRaceDetector skips a test of reconnections: pulsar-client-go has data races there.
func skipWithRaceDetector(t *testing.T) {
	if race.Enabled {
		t.Skip("pulsar-client-go has data races when it reconnects")
	}
}

// deleteTopic deletes a topic while consumers and readers are connected.
func (b *broker) deleteTopic(topic string) {
	b.callAdmin("DELETE", strings.Replace(topic, "://", "/", 1)+"?force=true", nil, nil)
}

func TestPeekOfATopicThatIsDeletedMeanwhileReturnsAnError(t *testing.T) {
	t.Parallel()
	skipWithRaceDetector(t)
	b := newBroker(t)
	tp := b.topics(0)
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(2000)...)
	n, failed := 0, error(nil)
	for _, err := range b.open(tp.dlq).Peek(bg, 0) {
		if failed = err; err != nil {
			continue
		}
		n++
		if n == 10 {
			b.deleteTopic(tp.dlq)
		}
	}
	require.Less(t, n, 2000)
	require.Error(t, failed)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// The producer creates the topic again, without the subscription that kept the letters.
func TestImportToATopicThatIsDeletedMeanwhileReturnsAnError(t *testing.T) {
	t.Parallel()
	skipWithRaceDetector(t)
	b := newBroker(t)
	tp := b.topics(0)
	b.subscribe(tp.dlq, "inspect").Close()
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(2000)...)
	d := b.open(tp.dlq)
	var file bytes.Buffer
	_, err := d.Purge(bg, deadletter.PurgeOptions{Export: &file})
	require.NoError(t, err)
	half := bytes.LastIndexByte(file.Bytes()[:file.Len()/2], '\n') + 1
	deleted := readerFunc(func([]byte) (int, error) {
		b.deleteTopic(tp.dlq)
		return 0, io.EOF
	})
	_, err = d.Import(bg, io.MultiReader(bytes.NewReader(file.Bytes()[:half]), deleted, bytes.NewReader(file.Bytes()[half:])),
		deadletter.ImportOptions{})
	require.ErrorContains(t, err, "was deleted during the import")
	var names []string
	b.callAdmin("GET", strings.Replace(tp.dlq, "://", "/", 1)+"/subscriptions", nil, &names)
	require.Equal(t, []string{own}, names)
}

func TestReplayOfATopicThatIsDeletedMeanwhileReturnsAnError(t *testing.T) {
	t.Parallel()
	skipWithRaceDetector(t)
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
