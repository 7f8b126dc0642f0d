package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCheckPrintsItsFindings(t *testing.T) {
	const clean, a, b = "testdata/history/clean.jsonl", "testdata/history/faults-a.jsonl", "testdata/history/faults-b.jsonl"
	for name, c := range map[string]struct {
		code int
		args []string
	}{
		"clean":     {0, []string{clean}},
		"faults":    {1, []string{a, b, "-max-deliveries", "5"}},
		"faults.js": {1, []string{b, "-json"}},
		"two":       {1, []string{"-findings", "2", a, b}},
	} {
		t.Run(name, func(t *testing.T) {
			code, got, stderr := command(append([]string{"check"}, c.args...)...)
			require.Empty(t, stderr)
			assert.Equal(t, c.code, code)
			path := filepath.Join("testdata/history", name+".golden")
			if *update {
				require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, string(want), got)
		})
	}
}

func TestCheckReadsStandardInput(t *testing.T) {
	var out, errs bytes.Buffer
	assert.Zero(t, checkCommand([]string{"-"}, strings.NewReader(`{"at":1,"event":"drained"}`), &out, &errs))
	assert.Empty(t, errs.String())
	assert.Contains(t, out.String(), "0 messages, 0 settled, 0 unfinished, 0 dead letters\n")

	assert.Equal(t, 1, checkCommand([]string{"-"}, strings.NewReader("\n{}\n"), &out, &errs))
	assert.Equal(t, "redelivery check: stdin:2: at is missing, want a whole number of microseconds from 0 to "+
		"9007199254740991\n", errs.String())
}

func TestCheckRefusesBadCommandLine(t *testing.T) {
	for want, args := range map[string][]string{
		"no file is given":                      {},
		`"0s" for flag -window: want more than`: {"-window", "0s", "x"},
		"flag -findings: want a whole number":   {"-findings", "-1", "x"},
	} {
		code, stdout, stderr := command(append([]string{"check"}, args...)...)
		assert.Equal(t, 2, code)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, want)
	}
	code, _, stderr := command("check", "testdata/missing.jsonl")
	assert.Equal(t, 1, code)
	assert.Contains(t, stderr, "no such file")
}

// docs/history.md has an example and the command's output for it.
func TestCheckPrintsTheOutputOfTheDocumentedExample(t *testing.T) {
	page, err := os.ReadFile("../../docs/history.md")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(page), "```json\n")
	lines, rest, _ := strings.Cut(rest, "```\n\n```\n$ redelivery check run.jsonl\n")
	want, _, _ := strings.Cut(rest, "```")
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("run.jsonl", []byte(lines), 0o600))
	code, got, stderr := command("check", "run.jsonl")
	require.Empty(t, stderr)
	assert.Equal(t, 1, code)
	assert.Equal(t, want, got)
}
