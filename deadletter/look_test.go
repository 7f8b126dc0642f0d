package deadletter_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

func TestExportWritesTheChosenLetters(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(2)
	l := tp.letters(20)
	l[3].Payload, l[3].Key, l[3].EventTime = []byte{0, 255}, "k", time.UnixMilli(5000)
	l[4].Payload, l[4].Key = nil, "k"
	l[5].EventTime = time.UnixMilli(-5000)
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 4, l...)
	var out bytes.Buffer
	n, err := b.open(tp.dlq).Export(bg, &out, deadletter.Filter{})
	require.NoError(t, err)
	require.Equal(t, 20, n)
	found := map[string]deadletter.Letter{}
	for line := range strings.Lines(out.String()) {
		var l deadletter.Letter
		require.NoError(t, json.Unmarshal([]byte(line), &l))
		found[l.Properties["number"]] = l
	}
	require.Len(t, found, 20)
	assert.Equal(t, "letter 2", string(found["2"].Payload))
	assert.Equal(t, []byte{0, 255}, found["3"].Payload)
	assert.Equal(t, "k", found["3"].Key)
	assert.Equal(t, int64(5000), found["3"].EventTime.UnixMilli())
	assert.True(t, found["2"].EventTime.IsZero())
	assert.WithinDuration(t, time.UnixMilli(-5000), found["5"].EventTime, time.Millisecond)
	assert.True(t, found["4"].Null)
	assert.Equal(t, -1, b.backlog(tp.dlq, own))

	full, w := io.Pipe()
	_ = full.CloseWithError(errors.New("disk full"))
	n, err = b.open(tp.dlq).Export(bg, w, deadletter.Filter{})
	require.ErrorContains(t, err, "disk full")
	require.Zero(t, n)
}

func TestPurgeAcknowledgesTheChosenLettersOnItsSubscription(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	l := tp.letters(25)
	for i, m := range l {
		m.Properties["odd"] = []string{"no", "yes"}[i%2]
	}
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 5, l...)
	b.subscribe(tp.dlq, "audit").Close()
	d := b.open(tp.dlq)
	path := t.TempDir() + "/purged"
	file, err := os.Create(path)
	require.NoError(t, err)
	defer file.Close()
	report, err := d.Purge(bg, deadletter.PurgeOptions{Filter: deadletter.Filter{Properties: map[string]string{"odd": "yes"}}, Export: file})
	require.NoError(t, err)
	require.Equal(t, 12, report.Done)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 12, bytes.Count(text, []byte("\n")))
	replayed, err := d.Replay(bg, deadletter.ReplayOptions{})
	require.NoError(t, err)
	require.Equal(t, 13, replayed.Done)
	for _, number := range numbers(b.receive(tp.retry)) {
		require.Contains(t, "0 2 4 6 8 10 12 14 16 18 20 22 24", number)
	}
	require.Zero(t, b.backlog(tp.dlq, own))
	require.Equal(t, 5, b.backlog(tp.dlq, "audit"), "the purge removed letters from another subscription")

	report, err = d.Purge(bg, deadletter.PurgeOptions{Export: io.Discard})
	require.NoError(t, err)
	require.Zero(t, report.Done)
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestPurgeOfLettersThatCannotBeExportedPurgesNothing(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(3)...)
	d := b.open(tp.dlq)
	_, err := d.Purge(bg, deadletter.PurgeOptions{Export: broken{}})
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.Len(t, peek(t, d), 3)
	require.Equal(t, -1, b.backlog(tp.dlq, own), "the failed purge left a subscription, which keeps letters")
}

// The admin API says which letters are unacknowledged.
func TestPeekShowsUnacknowledgedLetters(t *testing.T) {
	t.Parallel()
	b := newInProcess(t)
	tp := b.topics(0)
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(12)...)
	ledger := b.inProcess.Messages(tp.dlq)[0].ID.Ledger
	url := b.adminBut("/internalStats", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"cursors": {"redelivery": {"markDeletePosition": "%[1]d:1", "individuallyDeletedMessages": "[(%[1]d:3..%[1]d:5],(%[1]d:8..%[1]d:11]]"}}}`, ledger)
	})
	d := b.open(tp.dlq, func(o *deadletter.Options) { o.Admin.URL = url })
	var got []string
	for _, l := range peek(t, d) {
		got = append(got, l.Properties["number"])
	}
	require.Equal(t, []string{"2", "3", "6", "7", "8"}, got)
	n := 0
	for _, err := range d.Peek(bg, 2) {
		require.NoError(t, err)
		n++
	}
	require.Equal(t, 2, n)
}

func TestLetterIsFoundByIDUntilItIsReplayed(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 4, tp.letters(12)...)
	d := b.open(tp.dlq)
	letters := peek(t, d)
	for _, want := range letters {
		l, err := d.Letter(bg, want.ID)
		require.NoError(t, err)
		require.Equal(t, want.Properties["number"], l.Properties["number"])
	}
	_, err := d.Letter(bg, "no id")
	require.ErrorIs(t, err, deadletter.ErrNoLetter)
	_, err = d.Replay(bg, deadletter.ReplayOptions{Topic: tp.origin, Max: 1})
	require.NoError(t, err)
	gone := 0
	for _, was := range letters {
		if _, err := d.Letter(bg, was.ID); err != nil {
			require.ErrorIs(t, err, deadletter.ErrNoLetter)
			gone++
		}
	}
	require.Equal(t, 1, gone)
}

func TestReplayedLettersAreGoneForPeekAndReplay(t *testing.T) {
	t.Parallel()
	for name, newBroker := range map[string]func(testing.TB) *broker{"broker": newBroker,
		"in process": func(t testing.TB) *broker { return newInProcess(t) }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			tp := b.topics(0)
			b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(12)...)
			d := b.open(tp.dlq)
			ctx, cancel := context.WithTimeout(bg, 30*time.Second)
			defer cancel()
			for _, want := range []int{12, 0} {
				require.Len(t, peek(t, d), want)
				report, err := d.Replay(ctx, deadletter.ReplayOptions{})
				require.NoError(t, err)
				require.Equal(t, want, report.Done)
			}
			require.Empty(t, peek(t, d))
		})
	}
}

func TestReplayKeepsTheSchemaVersion(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	avro := pulsar.NewAvroSchema(orderSchema, nil)
	wider := pulsar.NewAvroSchema(strings.Replace(orderSchema, "]",
		`,{"name":"more","type":["null","string"],"default":null}]`, 1), nil)
	send := func(s pulsar.Schema, from, to int) {
		var l []*pulsar.ProducerMessage
		for i := from; i < to; i++ {
			m := tp.letter(i)
			m.Payload, _ = avro.Encode(order{int64(i), "x"})
			l = append(l, m)
		}
		b.publish(pulsar.ProducerOptions{Topic: tp.dlq, Schema: s}, 2, l...)
	}
	send(avro, 0, 4)
	send(wider, 4, 8)
	send(avro, 8, 10)
	d := b.open(tp.dlq)
	schemas := admin.Schemas{API: admin.API{URL: b.admin}, Topic: tp.dlq}
	s, err := schemas.Find(bg, peek(t, d)[4].Schema)
	require.NoError(t, err)
	require.Equal(t, "AVRO", s.Type)
	require.Contains(t, s.Data, "more")
	report, err := d.Replay(bg, deadletter.ReplayOptions{})
	require.NoError(t, err)
	require.Equal(t, 10, report.Done)
	got := b.receive(tp.retry)
	require.Equal(t, upTo(10), numbers(got))
	for i, m := range got {
		want := byte(0)
		if i >= 4 && i < 8 {
			want = 1
		}
		require.Equal(t, []byte{0, 0, 0, 0, 0, 0, 0, want}, m.SchemaVersion(), "letter %d", i)
	}

	// a letter with a schema is left if the schema is deleted, or if there is no admin API
	send(avro, 10, 12)
	blind, err := deadletter.Open(b.client, deadletter.Options{Topic: tp.dlq})
	require.NoError(t, err)
	blind.Hurry(300 * time.Millisecond)
	report, err = blind.Replay(bg, deadletter.ReplayOptions{})
	require.NoError(t, err)
	require.Equal(t, "has a schema: needs the admin API", report.Left[0].Why)
	b.callAdmin("DELETE", "schemas/"+full(tp.dlq)+"/schema?force=true", nil, nil)
	report, err = b.open(tp.dlq).Replay(bg, deadletter.ReplayOptions{})
	require.NoError(t, err)
	require.Zero(t, report.Done)
	require.Equal(t, "has a schema that is gone", report.Left[0].Why)
	require.Equal(t, 2, report.Left[0].Count)
}
