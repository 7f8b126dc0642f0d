package deadletter_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
)

// Progress may keep a Report, and another goroutine may read it, while the call counts further letters.
func TestReportOfProgressStaysAsItWas(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	const foreign = "persistent://public/other/orders"
	letters := tp.letters(40)
	for i, l := range letters {
		if i%2 == 0 {
			l.Properties["REAL_TOPIC"], l.Properties["ORIGIN_TOPIC"] = foreign, foreign
		}
	}
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, letters...)
	d := b.open(tp.dlq)
	var reports []deadletter.Report
	var texts []string
	text := func(r deadletter.Report) string {
		data, err := json.Marshal(r)
		require.NoError(t, err)
		return string(data)
	}
	progress := func(r deadletter.Report) {
		reports = append(reports, r)
		texts = append(texts, text(r))
	}
	var file bytes.Buffer
	_, err := d.Export(bg, &file, deadletter.Filter{})
	require.NoError(t, err)
	_, err = d.Replay(bg, deadletter.ReplayOptions{ToOrigin: true, Rate: 100, Progress: progress})
	require.ErrorIs(t, err, deadletter.ErrOtherNamespace)
	replayed := len(reports)
	require.Greater(t, replayed, 1)
	_, err = d.Import(bg, &file, deadletter.ImportOptions{Progress: progress})
	require.NoError(t, err)
	require.Greater(t, len(reports), replayed)
	for i, r := range reports {
		require.Equal(t, texts[i], text(r))
	}
}
