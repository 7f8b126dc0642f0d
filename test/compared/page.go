package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// text is the page without the tables. The tables replace the line TABLES.
//
//go:embed compared.md
var text string

var titles = map[string]string{
	nack:    "Nack with a growing delay",
	batch:   "Nack of one message in a batch of ten",
	timeout: "Ack timeout",
	retry:   "Retry topic",
}

// onPage is the version of Pulsar whose tables are on the page. Tables of other versions are in results/VERSION.md.
const onPage = "4.0.7"

// writePage writes the tables of all results.
func writePage(path string) error {
	files, err := filepath.Glob("results/*.json")
	if err != nil {
		return err
	}
	for _, file := range files {
		version := strings.TrimSuffix(filepath.Base(file), ".json")
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		results := map[string]result{}
		if err := json.Unmarshal(content, &results); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		var tables bytes.Buffer
		writeTables(&tables, version, results)
		to, page := path, strings.Replace(text, "TABLES\n", tables.String(), 1)
		if version != onPage {
			to, page = filepath.Join("results", version+".md"), tables.String()
		}
		if err := os.WriteFile(to, []byte(page), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// writeTables writes a table for each workload.
func writeTables(to *bytes.Buffer, version string, results map[string]result) {
	fmt.Fprintf(to, "## Pulsar %s\n", version)
	for _, w := range workloads {
		fmt.Fprintf(to, "\n### %s: `%s`\n\n| client | `%s` |\n|---|%s\n", titles[w], w, strings.Join(faults, "` | `"),
			strings.Repeat("---|", len(faults)))
		for _, c := range clients {
			if why := missing(c, w); why != "" {
				if !strings.HasSuffix(c, "+") {
					fmt.Fprintf(to, "| `%s` | %s%s\n", c, why, strings.Repeat(" |", len(faults)))
				}
				continue
			}
			fmt.Fprintf(to, "| `%s` |", c)
			for _, f := range faults {
				if r, ok := results[cell{c, w, f}.String()]; ok {
					fmt.Fprintf(to, " %s |", r)
				} else {
					fmt.Fprint(to, " not run |")
				}
			}
			fmt.Fprintln(to)
		}
	}
}

// notable is the smallest lateness that a cell shows.
const notable = 2 * time.Second

// String returns the figures that are not 0.
func (r result) String() string {
	var figures []string
	add := func(n int, format string, more ...any) {
		if n > 0 {
			figures = append(figures, fmt.Sprintf(format, append([]any{n}, more...)...))
		}
	}
	add(r.Lost, "**%d lost**")
	add(r.Unfinished, "**%d unfinished**")
	add(r.Early, "%d early (%s)", short(r.Earliest))
	add(r.Doubles, "%d doubles")
	add(r.Siblings, "%d siblings")
	add(r.Confirmed, "%d confirmed")
	add(r.Counts, "%d counts")
	if r.Latest >= notable {
		figures = append(figures, "late "+short(r.Latest))
	}
	return cmp.Or(strings.Join(figures, ", "), "–")
}

func short(d time.Duration) string {
	if d < 100*time.Millisecond {
		return fmt.Sprintf("%dms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1fs", d.Seconds())
}
