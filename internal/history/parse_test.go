package history_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/history"
)

// read returns the lines of a file.
func read(text string) (lines []*history.Line, err error) {
	r, err := history.NewReader(history.Source{Name: "run.jsonl", Reader: strings.NewReader(text)})
	for err == nil {
		var l *history.Line
		if l, err = r.Next(); err == nil {
			lines = append(lines, l)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return lines, err
}

func TestBadLineIsNamed(t *testing.T) {
	const good = `{"at":5,"event":"delivered","message":"m","consumer":"c"}` + "\n"
	for line, want := range map[string]string{
		`hello`:                                                 `run.jsonl:2: line is "hello", want one JSON object: `,
		`[1]`:                                                   `run.jsonl:2: line is "[1]", want one JSON object: it does not begin with {`,
		`{"at":6,"event":"drained"} {}`:                         `want one JSON object: text follows the object`,
		`{"event":"drained"}`:                                   `run.jsonl:2: at is missing, want a whole number of microseconds from 0 to 9007199254740991`,
		`{"at":1.5,"event":"drained"}`:                          `at is 1.5, want a whole number of microseconds`,
		`{"at":"6","event":"drained"}`:                          `at is "6", want a whole number of microseconds`,
		`{"at":null,"event":"drained"}`:                         `at is null, want a whole number of microseconds`,
		`{"at":-1,"event":"drained"}`:                           `at is -1, want a whole number of microseconds`,
		`{"at":4,"event":"drained"}`:                            `"at" is 4, less than 5 in the line before`,
		`{"at":6}`:                                              `event is missing, want a string`,
		`{"at":6,"event":"gone"}`:                               `event is "gone", want published, received, delivered, nacked, snoozed,`,
		`{"at":6,"At":6,"event":"drained"}`:                     `drained has a field "At", want only at, event and note`,
		`{"at":6,"at":6,"event":"drained"}`:                     `field "at" is given twice, want it once`,
		`{"at":6,"event":"acked"}`:                              `consumer is missing, want a string that is not empty`,
		`{"at":6,"event":"killed","key":"k"}`:                   `consumer is missing`,
		`{"at":6,"event":"published","message":""}`:             `message is "", want a string that is not empty`,
		`{"at":6,"event":"acked","message":"m","consumer":"c"}`: `confirmed is missing, want true or false`,
		`{"at":6,"event":"acked","message":"m","consumer":"c","confirmed":"yes"}`:             `confirmed is "yes", want true or false`,
		`{"at":6,"event":"nacked","message":"m","consumer":"c"}`:                              `delay is missing, want a whole number of microseconds`,
		`{"at":6,"event":"delivered","message":"m","consumer":"c","delay":1}`:                 `delivered has a field "delay", want only at, event, consumer, message, count, retry, copy and note`,
		`{"at":6,"event":"delivered","message":"m","consumer":"c","count":-1}`:                `count is -1, want a whole number from 0 to 2147483647`,
		`{"at":6,"event":"delivered","message":"m","consumer":"c","count":99999999999999999}`: `count is 99999999999999999, want a whole number from 0 to 2147483647`,
	} {
		_, err := read(good + line + "\n")
		require.Error(t, err, line)
		assert.Contains(t, err.Error(), want)
		assert.True(t, strings.HasPrefix(err.Error(), "run.jsonl:2: "), err)
	}
	_, err := read(good + strings.Repeat("x", 2<<20))
	require.ErrorContains(t, err, "run.jsonl:2: line has more than 1048576 bytes")
}

func TestUnfinishedLastLineIsDropped(t *testing.T) {
	whole := `{"at":5,"event":"delivered","message":"mä","consumer":"c","count":0,"note":"n"}`
	for n := range len(whole) {
		lines, err := read("\n" + whole + "\n" + whole[:n])
		require.NoError(t, err, whole[:n])
		require.Len(t, lines, 1)
		assert.Equal(t, "run.jsonl:2", lines[0].Place())
	}
	lines, err := read(whole)
	require.NoError(t, err)
	assert.Len(t, lines, 1, "a whole last line without a newline was dropped")
}

func TestFilesAreMergedByTime(t *testing.T) {
	events := []history.Event{{At: 1, Kind: history.Published, Message: "m"},
		{At: 2, Kind: history.Delivered, Message: "m", Consumer: "c", Count: -1},
		{At: 3, Kind: history.Acked, Message: "m", Consumer: "c"}, {At: 4, Kind: history.Drained}}
	for files := 1; files <= 4; files++ {
		summary, findings := check(t, history.Rules{}, events, files)
		assert.Empty(t, findings)
		assert.Equal(t, history.Summary{Messages: 1, Deliveries: 1, Settled: 1, Longest: time.Microsecond}, summary)
	}
}

// FuzzParse checks that each line that parses means the same after it is written and parsed again.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{`{"at":1,"event":"published","message":"m","key":"k"}`,
		`{"at":1,"event":"disconnected"}`,
		`{"at":1,"event":"delivered","message":"m","consumer":"c","count":3,"note":"\u0000"}`,
		`{"at":1,"event":"nacked","delay":1e3}`,
		`{"at":1,"event":"acked","message":"m","consumer":"c","confirmed":true}`, `{"at":1`, `{"at":{}}`, "\xff",
		`{"":1,"":2}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := history.Parse(text)
		if err != nil {
			require.NotEmpty(t, err.Error())
			require.Zero(t, e)
			return
		}
		again, err := history.Parse([]byte(e.String()))
		require.NoError(t, err)
		require.Equal(t, e, again)
	})
}
