package deadletter_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
)

func TestReplayPublishesAndAcknowledgesLetters(t *testing.T) {
	b := newBroker(t)
	for name, batch := range map[string]int{"alone": 1, "batches": 10} {
		t.Run(name, func(t *testing.T) {
			tp := b.topics(0)
			b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, batch, tp.letters(100)...)
			d := b.open(tp.dlq)
			report, err := d.Replay(bg, deadletter.ReplayOptions{})
			require.NoError(t, err)
			assert.Equal(t, 100, report.Done)
			assert.Equal(t, 100, report.Seen)
			assert.Empty(t, report.Left)
			got := b.receive(tp.retry)
			assert.Equal(t, upTo(100), numbers(got))
			assert.Equal(t, map[string]string{
				"number": "7", "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
				"REAL_TOPIC": tp.origin, "REAL_SUBSCRIPTION": sub, "ORIGIN_MESSAGE_ID": "7:7:-1",
				"ORIGIN_MESSAGE_IDY_TIME": "7:7:-1",
				"ORIGIN_TOPIC":            tp.origin, "RECONSUMETIMES": "0", "REPLAY_COUNT": "1",
				"REPLAY_RUN":   report.Run,
				"REPLAY_TOPIC": tp.retry,
			}, got[7].Properties())
			assert.Equal(t, "letter 7", string(got[7].Payload()))
			assert.Zero(t, b.backlog(tp.dlq, own))

			again, err := d.Replay(bg, deadletter.ReplayOptions{})
			require.NoError(t, err)
			assert.Zero(t, again.Seen)
			assert.False(t, again.Resumed)
		})
	}
}

func TestReplayKeepsTheFieldsThatTheSenderSet(t *testing.T) {
	b := newBroker(t)
	for name, change := range map[string]func(*pulsar.ProducerMessage){
		"key":          func(m *pulsar.ProducerMessage) { m.Key = "a key" },
		"ordering key": func(m *pulsar.ProducerMessage) { m.Key, m.OrderingKey = "k", "an ordering key" },
		"not UTF-8":    func(m *pulsar.ProducerMessage) { m.Key, m.Properties["p"] = "\xff\xfe", "\x80" },
		"event time":   func(m *pulsar.ProducerMessage) { m.EventTime = time.UnixMilli(1234567890123) },
		"before 1970":  func(m *pulsar.ProducerMessage) { m.EventTime = time.UnixMilli(-5000) },
		// upstream writes this time as one after 2262, and reads it back unchanged
		"after 2262": func(m *pulsar.ProducerMessage) { m.EventTime = time.Unix(0, math.MinInt64+1e15) },
		"null":       func(m *pulsar.ProducerMessage) { m.Payload, m.Key = nil, "k" },
		"empty":      func(m *pulsar.ProducerMessage) { m.Payload = []byte{} },
		"bytes":      func(m *pulsar.ProducerMessage) { m.Payload = []byte{0, 255, 1, 254} },
		"no other property": func(m *pulsar.ProducerMessage) {
			m.Properties = map[string]string{"REAL_TOPIC": m.Properties["REAL_TOPIC"]}
		},
	} {
		for _, batch := range []int{1, 2} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				tp := b.topics(0)
				sent := tp.letter(0)
				change(sent)
				b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, batch, sent, tp.letter(1))
				before := b.receive(tp.dlq)
				_, err := b.open(tp.dlq).Replay(bg, deadletter.ReplayOptions{})
				require.NoError(t, err)
				after := b.receive(tp.retry)
				require.Len(t, after, 2)
				assert.Equal(t, before[0].Payload(), after[0].Payload())
				assert.Equal(t, sent.Payload == nil, after[0].IsNullValue())
				assert.Equal(t, sent.Key, after[0].Key())
				assert.Equal(t, sent.Properties["p"], after[0].Properties()["p"])
				assert.Equal(t, sent.OrderingKey, after[0].OrderingKey())
				assert.Equal(t, before[0].EventTime(), after[0].EventTime())
			})
		}
	}
}

func TestReplayPublishesTheWholeLetterOfItsChunks(t *testing.T) {
	b := newBroker(t)
	tp := b.topics(0)
	sent := tp.letters(5)
	for i, m := range sent {
		m.Payload = []byte(strings.Repeat(string(rune('a'+i)), 3000))
	}
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq, EnableChunking: true, ChunkMaxMessageSize: 500}, 1, sent...)
	require.Equal(t, 30, b.backlog(tp.dlq, "x")+31, "the letters are not in chunks")
	d := b.open(tp.dlq)
	report, err := d.Replay(bg, deadletter.ReplayOptions{Max: 2})
	require.NoError(t, err)
	require.Equal(t, 2, report.Done)
	report, err = d.Replay(bg, deadletter.ReplayOptions{})
	require.NoError(t, err)
	require.Equal(t, 3, report.Done)
	got := b.receive(tp.retry)
	require.Equal(t, upTo(5), numbers(got))
	for i, m := range got {
		require.Equal(t, sent[i].Payload, m.Payload())
	}
	require.Zero(t, b.backlog(tp.dlq, own))
}

// The broker sends nothing for a while.
func TestReplayContinuesAfterAStallOfTheBroker(t *testing.T) {
	t.Parallel()
	b := newInProcess(t)
	tp := b.topics(0)
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(20)...)
	d := b.open(tp.dlq)
	d.Hurry(200 * time.Millisecond)
	b.inProcess.PauseDispatch(tp.dlq, true)
	resume := time.AfterFunc(700*time.Millisecond, func() { b.inProcess.PauseDispatch(tp.dlq, false) })
	defer resume.Stop()
	report, err := d.Replay(bg, deadletter.ReplayOptions{})
	require.NoError(t, err)
	require.Equal(t, 20, report.Done)
}

// The message also names the editor. The other letters of the batch stay.
func TestReplayOfEditedLetterHasTheNewPayload(t *testing.T) {
	b := newBroker(t)
	for name, batch := range map[string]int{"alone": 1, "batch": 4} {
		t.Run(name, func(t *testing.T) {
			tp := b.topics(0)
			b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, batch, tp.letters(4)...)
			d := b.open(tp.dlq)
			id := ""
			for l, err := range d.Peek(bg, 0) {
				require.NoError(t, err)
				if l.Properties["number"] == "2" {
					id = l.ID
				}
			}
			o := deadletter.ReplayOptions{Filter: deadletter.Filter{IDs: []string{id}},
				Edit: &deadletter.Edit{Payload: []byte("better"), By: "Åsa"}}
			report, err := d.Replay(bg, o)
			require.NoError(t, err)
			require.Equal(t, 1, report.Done)
			got := b.receive(tp.retry)
			require.Equal(t, []string{"2"}, numbers(got))
			assert.Equal(t, "better", string(got[0].Payload()))
			assert.Equal(t, "Åsa", got[0].Properties()[deadletter.PropertyEditedBy])
			assert.NotEmpty(t, got[0].Properties()[deadletter.PropertyEditedTime])
			assert.Equal(t, "1", got[0].Properties()["REPLAY_COUNT"])
			left, err := d.Groups(bg, deadletter.Filter{})
			require.NoError(t, err)
			require.Equal(t, 3, left[0].Count)
			_, err = d.Replay(bg, deadletter.ReplayOptions{Edit: o.Edit})
			require.ErrorContains(t, err, "ReplayOptions.Edit is set and Filter.IDs has 0 ids, want one")
			_, err = d.Replay(bg, deadletter.ReplayOptions{CanaryTimeout: 10})
			require.ErrorContains(t, err, "ReplayOptions.CanaryTimeout is 10ns, want 1ms or more")
		})
	}
}
