package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Columns are as wide as they are shown, whatever is in them.
func TestTable(t *testing.T) {
	var out bytes.Buffer
	d := &dlq{stdout: &out}
	rows := [][]string{{"KEY", ">BYTES", "CAUSE"}}
	for _, key := range []string{"plain", ">more", "日本語", "e\u0301e\u0301", "👍", fit(strings.Repeat("日本", 5), 12), fit(strings.Repeat("e\u0301", 13), 12)} {
		rows = append(rows, []string{key, "7", "x"})
	}
	d.table(append(rows, []string{"  a line that is longer than the columns"}))
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
