package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func command(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(args, &out, &errs)
	return code, out.String(), errs.String()
}

func planOf(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := command(append([]string{"plan"}, args...)...)
	require.Empty(t, stderr)
	require.Zero(t, code)
	return stdout
}

func TestPlanPrintsItsGoldenFiles(t *testing.T) {
	for name, args := range map[string][]string{
		"pip130":     {"-config", "testdata/pip130.yaml"},
		"pip94":      {"-levels", "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h", "-redeliveries", "20"},
		"jitter":     {"-exponential", "1s,10m,2", "-jitter", "0.1", "-redeliveries", "12"},
		"dead":       {"-config", "testdata/dead.yaml"},
		"consumer":   {"-config", "testdata/dead.yaml", "-consumer", "shipping"},
		"policies":   {"-config", "testdata/policies.yaml"},
		"far":        {"-fixed", "1m", "-max-deliveries", "1000"},
		"too far":    {"-fixed", "1m", "-max-deliveries", "1000000", "-redeliveries", "2"},
		"at once":    {"-fixed", "0s", "-redeliveries", "2"},
		"timeout":    {"-ack-timeout", "1m30s", "-max-deliveries", "3"},
		"pip130.js":  {"-ack-timeout", "10s", "-exponential", "1s,60s", "-json"},
		"dead.js":    {"-config", "testdata/dead.yaml", "-json"},
		"workers":    {"-config", "testdata/workers.yaml"},
		"workers.js": {"-config", "testdata/workers.yaml", "-consumer", "billing", "-json"},
	} {
		t.Run(name, func(t *testing.T) {
			got := planOf(t, args...)
			path := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".golden")
			if *update {
				require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, string(want), got)
			for line := range strings.Lines(got) {
				assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), width, "%q", line)
			}
		})
	}
}

func TestPlanShowsTheDelaysOfPIP130(t *testing.T) { // 10+1, 10+2 … 10+60, 10+60
	for _, args := range [][]string{
		{"-config", "testdata/pip130.yaml", "-json"},
		{"-ack-timeout", "10s", "-exponential", "1s,60s,2", "-json"},
	} {
		var plans []struct {
			Redeliveries []struct{ Delay, Total float64 }
		}
		require.NoError(t, json.Unmarshal([]byte(planOf(t, args...)), &plans))
		require.Len(t, plans, 1)
		var delays, totals []float64
		for _, r := range plans[0].Redeliveries {
			delays, totals = append(delays, r.Delay), append(totals, r.Total)
		}
		assert.Equal(t, []float64{11, 12, 14, 18, 26, 42, 70, 70}, delays)
		assert.Equal(t, []float64{11, 23, 37, 55, 81, 123, 193, 263}, totals)
	}
}

// The sign is before the longest total that can be shown.
func TestTotalThatIsTooLongHasAGreaterSign(t *testing.T) {
	got := planOf(t, "-levels", "106751d", "-max-deliveries", "3")
	assert.Contains(t, got, "         1  106751d   106751d  █")
	assert.Contains(t, got, "         2  106751d  >106751d  █")
	assert.Contains(t, got, "Dead letter after delivery 3, more than 106751d after the first.")
}

// Delays, names and numbers are as long as possible.
func TestEachLineFitsATerminal(t *testing.T) {
	long := filepath.Join(t.TempDir(), "long.yaml")
	name := strings.Repeat("ü", 200)
	require.NoError(t, os.WriteFile(long, []byte("consumers: {"+name+": {ackTimeout: 2562047h47m16s854ms}}"), 0o600))
	for _, args := range [][]string{
		{"-config", long},
		{"-levels", "23h 106751d", "-jitter", "1", "-max-deliveries", "10000"},
		{"-exponential", "1ms,2562047h,1e300", "-jitter", "0.333"},
		{"-exponential", "1ms,1234567ms,1.1", "-jitter", "0.123456789", "-redeliveries", "10000"},
		{"-exponential", "3601s,172799s,1.01", "-jitter", "0.0001", "-redeliveries", "300"},
		{"-fixed", "333333333ns", "-jitter", "0.777777", "-redeliveries", "300"},
		{"-h"},
	} {
		for line := range strings.Lines(planOf(t, args...)) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), width, "%q: %q", args, line)
		}
	}
}

func TestBadCommandLineIsRefused(t *testing.T) {
	for want, args := range map[string][]string{
		"Usage: redelivery <command>":       {},
		`command is "plane", want plan`:     {"plane"},
		"no policy is given":                {"plan"},
		`argument is "1s", want only flags`: {"plan", "-fixed", "1s", "1s"},
		"-exponential and -levels are both given": {"plan", "-levels", "1s", "-exponential",
			"1s"},
		"-config and -jitter are both given":   {"plan", "-config", "x", "-jitter", "0"},
		"-consumer is given, want -config too": {"plan", "-consumer", "x", "-fixed", "1s"},
		"-jitter is given, want a policy too": {"plan", "-ack-timeout", "1s", "-jitter",
			"0.1"},
		"-ack-timeout is 0s, want more than 0":                              {"plan", "-ack-timeout", "0"},
		"-ack-timeout is 5ns, want 1ms or more (5ns: is the unit missing?)": {"plan", "-ack-timeout", "5ns"},
		`"0" for flag -max-deliveries: want a whole number, 1 or more`: {"plan", "-fixed", "1s", "-max-deliveries",
			"0"},
		`"0" for flag -redeliveries: want a whole number, 1 to 10000`: {"plan", "-fixed", "1s", "-redeliveries",
			"0"},
		`"-1" for flag -redeliveries: want a whole number, 1 to 10000`: {"plan", "-fixed", "1s", "-redeliveries",
			"-1"},
		`"10001" for flag -redeliveries: want a whole number, 1 to 10000`: {"plan", "-fixed", "1s", "-redeliveries",
			"10001"},
		`"x" for flag -jitter: want a number`:                   {"plan", "-fixed", "1s", "-jitter", "x"},
		`invalid value "x" for flag -fixed`:                     {"plan", "-fixed", "x"},
		`"5" for flag -fixed: a unit is missing`:                {"plan", "-fixed", "5"},
		"a unit is missing, want 10s, 10m or 10h":               {"plan", "-ack-timeout", "10"},
		`"NaN" for flag -fixed: want a duration, such as 1m30s`: {"plan", "-fixed", "NaN"},
		`"1e3" for flag -fixed: want a duration, such as 1m30s`: {"plan", "-fixed", "1e3"},
		`"1e300" for flag -fixed: want a duration`:              {"plan", "-fixed", "1e300"},
		`"1_0" for flag -fixed: want a duration`:                {"plan", "-fixed", "1_0"},
		`"2562048h" for flag -fixed: want at most 2562047h`:     {"plan", "-fixed", "2562048h"},
		`"1e309" for flag -jitter: want a number from 0 to 1`:   {"plan", "-fixed", "1s", "-jitter", "1e309"},
		"flag provided but not defined: -fix":                   {"plan", "-fix", "1s"},
		`"" for flag -config: want a file`:                      {"plan", "-config", ""},
		`-consumer is "", want a name`:                          {"plan", "-config", "x", "-consumer", ""},
	} {
		code, stdout, stderr := command(args...)
		assert.Equal(t, 2, code, "%q", args)
		assert.Empty(t, stdout, "%q", args)
		assert.Contains(t, stderr, want)
		if len(args) > 0 {
			assert.Equal(t, 1, strings.Count(stderr, "\n"), "one line: %q", stderr)
		}
	}
}

func TestBadPolicyIsRefused(t *testing.T) {
	for want, c := range map[string]struct {
		args []string
		code int
	}{
		`-exponential is "1s,2s,3,4", want min,max,multiplier`: {[]string{"-exponential", "1s,2s,3,4"}, 2},
		`-exponential is "1", want`:                            {[]string{"-exponential", "1"}, 2},
		`-exponential is "1s,,x", want`:                        {[]string{"-exponential", "1s,,x"}, 2},
		"Exponential.Max is 1s, want at least Min":             {[]string{"-exponential", "2s,1s"}, 2},
		`"5x" is not a delay`:                                  {[]string{"-levels", "1s 5x"}, 2},
		"Fixed delay is -1s":                                   {[]string{"-fixed", "-1s"}, 2},
		"jitter fraction is 2":                                 {[]string{"-fixed", "1s", "-jitter", "2"}, 2},
		"jitter fraction is NaN":                               {[]string{"-fixed", "1s", "-jitter", "NaN"}, 2},
		"no such file":                                         {[]string{"-config", "testdata/missing.yaml"}, 1},
		`-consumer is "biling", want one of the file's (`: {[]string{"-config", "testdata/dead.yaml", "-consumer",
			"biling"}, 1},
		`want one of the file's (billing, ordered, plain)`: {[]string{"-config", "testdata/workers.yaml",
			"-consumer", "biling"}, 1},
	} {
		code, stdout, stderr := command(append([]string{"plan"}, c.args...)...)
		assert.Equal(t, c.code, code, "%q", c.args)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, want)
	}
}

// -consumer names the worker.
func TestPlanShowsAWorkerWithoutAConsumer(t *testing.T) {
	got := planOf(t, "-config", "testdata/workers.yaml", "-consumer", "ordered")
	assert.Contains(t, got, "ordered: worker\n")
	assert.Contains(t, got, "a key           is handled in order, over retries\n")
	assert.NotContains(t, got, "billing")

	file := filepath.Join(t.TempDir(), "workers.yaml")
	require.NoError(t, os.WriteFile(file, []byte("workers: {w: {batchMaxMessages: 7}}"), 0o600))
	assert.Contains(t, planOf(t, "-config", file, "-consumer", "w"),
		"a batch         ends after 7 messages or 1048576 bytes or 100ms\n", "with defaults")
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestCommandThatCannotWriteItsOutputFails(t *testing.T) {
	newBroker(t)
	for _, line := range []string{"help", "plan -h", "plan -fixed 1s", "plan -fixed 1s -json", "dlq -h", "dlq list",
		"dlq groups orders-billing-DLQ",
		"dlq peek orders-billing-DLQ", "dlq peek orders-billing-DLQ -json", "dlq export orders-billing-DLQ",
		"dlq replay orders-billing-DLQ",
		"dlq replay orders-billing-DLQ -max 1 -yes", "dlq purge orders-billing-DLQ -no-export",
		"dlq purge orders-billing-DLQ -no-export -yes"} {
		var errs bytes.Buffer
		assert.Equal(t, 1, run(strings.Fields(line), full{}, &errs), line)
		assert.Contains(t, errs.String(), "no space left", line)
	}
}

func TestHelpFitsATerminal(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"-h"}, {"plan", "-h"}, {"dlq", "-h"}, {"doctor", "-h"},
		{"simulate", "-h"}, {"attempts", "-h"}, {"ui", "-h"}, {"check", "-h"}} {
		code, stdout, stderr := command(args...)
		assert.Zero(t, code)
		assert.Contains(t, stdout, "Usage: redelivery")
		assert.Empty(t, stderr)
		for line := range strings.Lines(stdout) {
			assert.LessOrEqual(t, len(line)-1, width, line)
		}
	}
}
