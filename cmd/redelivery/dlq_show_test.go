package main

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// On a terminal a wide character has width 2, and a combining one has width 0.
func TestColumnsOfATableAreAlignedOnATerminal(t *testing.T) {
	var out bytes.Buffer
	rows := [][]string{{"KEY", ">BYTES", "CAUSE"}}
	for _, key := range []string{"plain", ">more", "日本語", "e\u0301e\u0301", "👍", fit(strings.Repeat("日本", 5), 12),
		fit(strings.Repeat("e\u0301", 13), 12)} {
		rows = append(rows, []string{key, "7", "x"})
	}
	writeTable(&out, append(rows, []string{"  a line that is longer than the columns"}))
	require.Equal(t, strings.Join([]string{
		"KEY           BYTES  CAUSE",
		"plain             7  x",
		">more             7  x",
		"日本語            7  x",
		"e\u0301e\u0301                7  x",
		"👍                7  x",
		"日本日本日…       7  x",
		strings.Repeat("e\u0301", 11) + "…      7  x",
		"  a line that is longer than the columns\n"}, "\n"), out.String())
}

// Output of dlq fits the screen.
func TestTableFitsTheWidthInCOLUMNS(t *testing.T) {
	newBroker(t)
	for columnsOf, whole := range map[string]bool{"60": false, "": false, "what": false, "200": true} {
		t.Setenv("COLUMNS", columnsOf)
		room, err := strconv.Atoi(columnsOf)
		if err != nil {
			room = width
		}
		for _, verb := range []string{"groups", "peek"} {
			code, stdout, stderr := dlqRun("", verb, "orders-billing-DLQ")
			require.Zero(t, code, stderr)
			_, rows, _ := strings.Cut(stdout, "\n\n")
			for line := range strings.Lines(rows) {
				require.LessOrEqual(t, columns(strings.TrimSpace(line)), room, line)
			}
			require.Equal(t, whole, strings.Contains(stdout, "connect: connection refused"), stdout)
		}
	}
}
