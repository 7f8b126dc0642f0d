package deadletter_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
)

// lettersIn returns the letters of an export, without the fields that an import changes.
func lettersIn(t *testing.T, text []byte) (all []deadletter.Letter) {
	for line := range bytes.Lines(text) {
		var l deadletter.Letter
		require.NoError(t, json.Unmarshal(line, &l))
		l.ID, l.Published = "", time.Time{}
		all = append(all, l)
	}
	return all
}

// There are letters of every kind, also encrypted ones. They keep their order and partition.
func TestImportRestoresAllLettersOfExportAndPurge(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{0, 2} {
		t.Run(fmt.Sprint(partitions), func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			tp := b.topics(partitions)
			b.subscribe(tp.dlq, "audit").Close()
			dir := makeKeys(t)
			b.mixed(tp, dir, 0, 600)
			special := tp.letters(6)
			special[0].Payload = nil
			special[1].Payload = []byte{}
			special[2].Key, special[2].OrderingKey = "k", "an ordering key"
			special[3].EventTime = time.UnixMilli(1_700_000_000_123)
			special[2].EventTime = time.UnixMilli(-1)
			special[4].Payload = bytes.Repeat([]byte("large"), 300_000)
			special[5].Properties["ü"] = "日本\x00\u202e"
			b.publish(pulsar.ProducerOptions{Topic: tp.dlq, EnableChunking: true}, 1, special...)

			d := b.open(tp.dlq, func(o *deadletter.Options) { _, o.Decryption = keys(dir) })
			var exported, purged, again bytes.Buffer
			n, err := d.Export(bg, &exported, deadletter.Filter{})
			require.NoError(t, err)
			require.Equal(t, 606, n)
			report, err := d.Purge(bg, deadletter.PurgeOptions{Export: &purged})
			require.NoError(t, err)
			require.Equal(t, 606, report.Done)
			require.Equal(t, exported.String(), purged.String())
			require.Empty(t, peek(t, d))

			encryption, _ := keys(dir)
			report, err = d.Import(bg, bytes.NewReader(purged.Bytes()),
				deadletter.ImportOptions{Encryption: encryption})
			require.NoError(t, err)
			require.Equal(t, 606, report.Done)
			require.Empty(t, report.Left)
			n, err = d.Export(bg, &again, deadletter.Filter{})
			require.NoError(t, err)
			require.Equal(t, 606, n)
			want, got := lettersIn(t, purged.Bytes()), lettersIn(t, again.Bytes())
			for i := range want {
				require.Equal(t, want[i], got[i], "letter %d", i)
			}
			for l, err := range b.open(tp.dlq).Peek(bg, 0) { // without keys
				require.NoError(t, err)
				require.True(t, l.Encrypted, "plain text in the topic: %s", l.ID)
			}
		})
	}
}

// With io.Discard, Purge deletes all letters.
func TestPurgeLeavesLettersThatItsFileCannotHold(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	dir := makeKeys(t)
	e, decryption := keys(dir)
	l := tp.letters(4)
	l[3].Properties["p"] = "\x80"
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, l[0])
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq, Encryption: e}, 1, l[1], l[2])
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, l[3])
	var out bytes.Buffer
	d := b.open(tp.dlq)
	plan, err := d.Purge(bg, deadletter.PurgeOptions{DryRun: true})
	require.NoError(t, err)
	report, err := d.Purge(bg, deadletter.PurgeOptions{Export: &out})
	require.NoError(t, err)
	assert.Equal(t, plan.Left, report.Left)
	assert.Equal(t, plan.Done, report.Done)
	assert.Equal(t, 1, report.Done)
	require.Len(t, report.Left, 2)
	assert.Equal(t, "is encrypted: without keys, its export could not be read", report.Left[0].Why)
	assert.Equal(t, 2, report.Left[0].Count)
	assert.Equal(t, "has a key or a property that is not UTF-8, which JSON cannot have", report.Left[1].Why)
	require.Equal(t, 3, b.backlog(tp.dlq, own))

	report, err = b.open(tp.dlq, func(o *deadletter.Options) { o.Decryption = decryption }).Purge(bg,
		deadletter.PurgeOptions{Export: &out})
	require.NoError(t, err)
	assert.Equal(t, 2, report.Done)
	written := lettersIn(t, out.Bytes())
	require.Len(t, written, 3)
	require.Equal(t, "letter 2", string(written[2].Payload))
	require.True(t, written[2].Decrypted)

	report, err = d.Import(bg, bytes.NewReader(out.Bytes()), deadletter.ImportOptions{}) // without keys: no plain text
	require.NoError(t, err)
	require.Equal(t, 1, report.Done)
	require.Equal(t, "was encrypted: needs keys to encrypt it again", report.Left[0].Why)

	report, err = d.Purge(bg, deadletter.PurgeOptions{Export: io.Discard})
	require.NoError(t, err)
	require.Empty(t, report.Left)
	require.Zero(t, b.backlog(tp.dlq, own))
}

// The export changed a key or a property that is not UTF-8.
func TestImportLeavesLettersThatTheExportChanged(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	l := tp.letters(3)
	l[0].Key, l[2].Properties["p"] = "\xff\xfe", "\x80"
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, l...)
	d := b.open(tp.dlq)
	var file bytes.Buffer
	n, err := d.Export(bg, &file, deadletter.Filter{})
	require.NoError(t, err)
	require.Equal(t, 3, n)
	report, err := d.Import(bg, &file, deadletter.ImportOptions{})
	require.NoError(t, err)
	require.Equal(t, 1, report.Done)
	require.Len(t, report.Left, 1)
	require.Equal(t, 2, report.Left[0].Count)
	require.Equal(t, "has a key or a property that is not UTF-8, which JSON cannot have", report.Left[0].Why)
}

// The error of the failed import says which lines are done. The next import takes the rest, and no line twice.
func TestImportContinuesAfterAnError(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(500)...)
	d := b.open(tp.dlq)
	var file bytes.Buffer
	_, err := d.Purge(bg, deadletter.PurgeOptions{Export: &file})
	require.NoError(t, err)
	lines := strings.SplitAfter(file.String(), "\n")
	broken := strings.Join(lines[:300], "") + "{\"id\":\"1:" + "\n" + strings.Join(lines[300:], "")
	report, err := d.Import(bg, strings.NewReader(broken), deadletter.ImportOptions{DryRun: true})
	require.EqualError(t, err, "deadletter: line 301 is not a letter", "after a dry run, the error names done lines")
	require.Equal(t, 300, report.Done)
	require.Empty(t, peek(t, d))
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	report, err = d.Import(ctx, strings.NewReader(broken),
		deadletter.ImportOptions{Progress: func(r deadletter.Report) {
			if r.Done > 50 {
				cancel()
			}
		}})
	before := report.Done
	var stopped *deadletter.ImportError
	require.ErrorAs(t, err, &stopped)
	require.Equal(t, before, stopped.Lines)
	require.ErrorContains(t, err, fmt.Sprintf("the first %d lines are done", before))
	_, err = d.Import(bg, strings.NewReader(file.String()), deadletter.ImportOptions{Skip: 501})
	require.EqualError(t, err, "deadletter: ImportOptions.Skip is 501, want at most the 500 lines of the reader")
	_, err = d.Import(bg, strings.NewReader(file.String()), deadletter.ImportOptions{Skip: 500})
	require.NoError(t, err)
	report, err = d.Import(bg, strings.NewReader(file.String()), deadletter.ImportOptions{Skip: before})
	require.NoError(t, err)
	require.Equal(t, 500, before+report.Done)
	var got []string
	for _, l := range peek(t, d) {
		got = append(got, l.Properties["number"])
	}
	require.Equal(t, upTo(500), got)
}

// A version means another schema on another topic. Letters without a schema version are imported.
func TestImportToAnotherTopicLeavesOutLettersWithASchema(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	from, to := b.topics(0), b.topics(0)
	for tp, definition := range map[topics]string{from: orderSchema,
		to: `{"type":"record","name":"other","fields":[{"name":"Name","type":"string"}]}`} {
		b.subscribe(tp.dlq, "audit").Close()
		l := tp.letter(0)
		l.Payload = []byte{2, 'x'}
		// only a batch has the version
		b.publish(pulsar.ProducerOptions{Topic: tp.dlq, Schema: pulsar.NewAvroSchema(definition, nil)}, 10, l)
	}
	b.publish(pulsar.ProducerOptions{Topic: from.dlq}, 1, from.letter(1))
	var file bytes.Buffer
	_, err := b.open(from.dlq).Export(bg, &file, deadletter.Filter{})
	require.NoError(t, err)
	d := b.open(to.dlq)
	for _, dryRun := range []bool{true, false} {
		report, err := d.Import(bg, bytes.NewReader(file.Bytes()), deadletter.ImportOptions{DryRun: dryRun})
		require.NoError(t, err)
		require.Equal(t, 1, report.Done)
		require.Len(t, report.Left, 1)
		require.Equal(t, "has a schema of another topic", report.Left[0].Why)
	}
	require.Len(t, peek(t, d), 2)
	report, err := b.open(from.dlq).Import(bg, bytes.NewReader(file.Bytes()), deadletter.ImportOptions{})
	require.NoError(t, err)
	require.Equal(t, 2, report.Done)
}

// Import refuses a missing topic, and a topic that is not for dead letters.
func TestImportCreatesASubscriptionThatKeepsTheLetters(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	line := `{"id":"1:0:0","payload":"eA=="}` + "\n"
	report, err := b.open(tp.dlq).Import(bg, strings.NewReader(line), deadletter.ImportOptions{})
	require.NoError(t, err)
	require.Equal(t, own, report.Creates)
	require.Equal(t, 1, b.backlog(tp.dlq, own))
	_, err = b.open(tp.dlq+"-nothing-DLQ").Import(bg, strings.NewReader(line), deadletter.ImportOptions{})
	require.ErrorIs(t, err, deadletter.ErrNoTopic)
	_, err = b.open(tp.origin).Import(bg, strings.NewReader(line), deadletter.ImportOptions{})
	require.ErrorIs(t, err, deadletter.ErrNotDeadLetters)
	_, err = b.open(tp.dlq).Import(bg, nil, deadletter.ImportOptions{})
	require.Error(t, err)
}
