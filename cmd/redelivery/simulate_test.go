package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/simulate"
)

// The command simulates an outage with the options of a file. Each variant differs from the file in one option.
func TestSimulateShowsVariantsAsNumbersChartAndPicture(t *testing.T) {
	dir := t.TempDir()
	file, picture := filepath.Join(dir, "redelivery.yaml"), filepath.Join(dir, "outage.svg")
	require.NoError(t, os.WriteFile(file, []byte(`
policies: {second: {type: fixed, delay: 1s}, pause: {type: exponential, min: 1s, max: 4s}}
consumers: {billing: {nackRedeliveryBackoff: second, maxDeliveries: 5}}
workers: {billing: {concurrency: 4, pauseOnFailureWindow: 20, pauseOnFailureRatio: 0.9, pauseOnFailureBackoff: pause}}`), 0o600))
	args := []string{"simulate", "-config", file, "-consumer", "billing", "-rate", "3000/m", "-instances", "2",
		"-handler", "10ms", "-outage", "30s",
		"-before", "10s"}
	code, stdout, stderr := command(append(args, "-svg", picture)...)
	require.Zero(t, code, stderr)
	assert.Contains(t, stdout, "50 messages a second for 2 × 4 handlers of 10ms; all calls fail for 30s\n")
	for _, name := range []string{"as configured", "with jitter 0.2", "without a pause", "with a retry topic"} {
		assert.Contains(t, stdout, "\n"+name+"\n", name)
	}
	for line := range strings.Lines(stdout) {
		assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), width, line)
	}
	svg, err := os.ReadFile(picture)
	require.NoError(t, err)
	assert.NotRegexp(t, `(width|height|x|y|x1|x2|y1|y2)="(-|NaN|\+Inf)`, string(svg))
	for text, times := range map[string]int{
		">as configured: ": 1, ">without a pause: ": 1, ">with a retry topic: ": 1,
		`<polyline class="dead"`:     strings.Count(string(svg), `<polyline class="unsettled"`),
		"prefers-color-scheme: dark": 1,
	} {
		assert.Equal(t, times, strings.Count(string(svg), text), text)
	}
	for d := xml.NewDecoder(strings.NewReader(string(svg))); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
	}

	code, stdout, _ = command(append(args, "-json")...)
	require.Zero(t, code)
	var all []struct {
		Name                 string
		Calls, Dead, Handled int
		Recovered            bool
		After                time.Duration
		Points               []struct{ Calls, Backlog, Waiting, Dead int }
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &all))
	require.Len(t, all, 4)
	paused, nacks := all[0], all[2]
	assert.Equal(t, "without a pause", nacks.Name)
	assert.InDelta(t, 50*(30-4), nacks.Dead, 20,
		"dead letters, without messages of the last four seconds, which are tried again after the outage")
	assert.InDelta(t, 50*30+50*29+50*28+50*27+50*26, nacks.Calls, 50)
	assert.Zero(t, paused.Dead)
	assert.Less(t, paused.Calls, nacks.Calls/20)
	for _, v := range all {
		assert.True(t, v.Recovered, v.Name)
	}
}

// The distance between labels is the same everywhere, also from 0 to the first label.
func TestAxesOfAPictureAreLinear(t *testing.T) {
	for most, want := range map[float64]axis{0.5: {0.2, 0.6}, 1: {0.2, 1}, 7: {2, 8}, 10: {2, 10}, 49: {10, 50},
		51: {20, 60}, 1617: {500, 2000},
		4000: {1000, 4000}, 119440: {50000, 150000}} {
		got := axisOf(most)
		assert.InDelta(t, want.step, got.step, 1e-9, "%v", most)
		assert.InDelta(t, want.most, got.most, 1e-9, "%v", most)
	}
	assert.Equal(t, "1,234,000", withThousands(1234000))
	assert.Equal(t, "0.5", withThousands(0.5))
}

// A variant whose figures are like another's has a line of text instead.
func TestPictureHasNoPanelForAlikeVariant(t *testing.T) {
	a := variant{"a", simulate.Result{Calls: 100, Dead: 50, Unsettled: 10, Recovered: true, After: time.Minute}}
	b, c := a, a
	b.Name, b.Calls = "b", 103
	c.Name, c.Dead = "c", 0
	drawn, left := different([]variant{a, b, c})
	assert.Equal(t, []variant{a, c}, drawn)
	assert.Equal(t, []string{"b: like “a”, within 5 %"}, left)
}

func TestSimulateRefusesWrongCommandLines(t *testing.T) {
	for want, args := range map[string][]string{
		`argument is "x", want only flags`:                                         {"x"},
		"only one of -config and -consumer is given":                               {"-config", "f"},
		`"" for flag -config: want a file`:                                         {"-config", "", "-consumer", "c"},
		"want messages in a time, such as 200/s":                                   {"-rate", "200/d"},
		"want a whole number, 1 to 1000":                                           {"-instances", "0"},
		"want more than 0":                                                         {"-outage", "0s"},
		"want a number above 0, and at most 1":                                     {"-partial", "0"},
		`"1e309" for flag -partial: want a number above 0, and at most 1`:          {"-partial", "1e309"},
		"-rate, -before and -outage make 1.19e+07 messages, want at most 10000000": {"-rate", "18000/s"},
		"-rate, -before and -outage make 6.6e-07 messages, want at least 1": {"-rate", "1e-9/s", "-outage",
			"10m"},
		`"2000000h" for flag -outage: want at most 720h`: {"-rate", "1/h", "-outage",
			"2000000h"},
		`"721h" for flag -before: want at most 720h`: {"-before", "721h"},
	} {
		code, stdout, stderr := command(append([]string{"simulate"}, args...)...)
		assert.Equal(t, 2, code, want)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, want)
	}
	code, stdout, _ := command("simulate", "-h")
	assert.Zero(t, code)
	for line := range strings.Lines(stdout) {
		assert.LessOrEqual(t, utf8.RuneCountInString(line), width+1, line)
	}
}

// The options that simulate ignores would change the figures.
func TestSimulateNamesOptionsThatItIgnores(t *testing.T) {
	file := filepath.Join(t.TempDir(), "redelivery.yaml")
	for worker, want := range map[string]string{
		"{concurrency: 4, timeout: 20ms, drainTimeout: 1s}": "",
		"{keyOrder: true, rateLimit: 5, timeout: 19ms}": "redelivery simulate: not simulated: keyOrder, " +
			"rateLimit, timeout of the worker\n",
		"{localRetries: 2, localRetryBackoff: second}": "redelivery simulate: not simulated: localRetries of " +
			"the worker\n",
	} {
		require.NoError(t, os.WriteFile(file,
			[]byte("policies: {second: {type: fixed, delay: 1s}}\nconsumers: {billing: {nackRedeliveryBackoff: "+
				"second}}\n"+
				"workers: {billing: "+worker+"}"), 0o600))
		code, _, stderr := command("simulate", "-config", file, "-consumer", "billing", "-outage", "10s", "-before",
			"1s")
		require.Zero(t, code)
		require.Equal(t, want, stderr)
	}
}

// The error says what to reduce.
func TestSimulationThatWouldTakeHoursIsRefused(t *testing.T) {
	s := &simulation{given: map[string]bool{}}
	require.NoError(t, s.parse([]string{"-rate", "10/s", "-outage", "24h"}))
	s.MostEvents = 200_000
	require.EqualError(t, s.run(io.Discard, io.Discard),
		"as configured: more than 200000 events in the first 13m20.302s, "+
			"want a shorter -outage, a lower -rate, fewer -instances or longer delays")
}

func TestSimulationOfFewMessagesMayCoverALongTime(t *testing.T) {
	code, stdout, stderr := command("simulate", "-rate", "1/h", "-outage", "24h", "-before", "720h")
	require.Zero(t, code, stderr)
	assert.Contains(t, stdout, "all calls fail for 24h")
}
