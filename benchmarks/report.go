package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// summarize adds the figures that are computed from other figures and from the samples.
func summarize(r *result) {
	f := r.Figures
	f["messages"] = float64(r.Task.Messages)
	if bytes, ok := f["heapBytes"]; ok {
		n := float64(max(1, r.Task.Consumers))
		f["heapMB"], f["heapPerConsumerKB"], f["idlePerConsumer"] = bytes/1e6, bytes/1e3/n, f["idlePercent"]/n
	}
	if len(r.Samples) == 0 {
		return
	}
	slices.Sort(r.Samples)
	early := slices.IndexFunc(r.Samples, func(late float64) bool { return late >= 0 })
	if early < 0 {
		early = len(r.Samples)
	}
	f["earlyPercent"] = 100 * float64(early) / float64(len(r.Samples))
	f["earlyMs"] = max(0, -r.Samples[0])
	for name, q := range map[string]float64{"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1} {
		f[name] = quantile(r.Samples, q)
	}
	distance := make([]float64, len(r.Samples))
	for i, late := range r.Samples {
		distance[i] = math.Abs(late)
	}
	slices.Sort(distance)
	f["p99abs"] = quantile(distance, 0.99)
}

// quantile returns the smallest value of sorted such that at least the fraction q of all values is not greater.
func quantile(sorted []float64, q float64) float64 {
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// compare adds how much more CPU each client used than plain pulsar-client-go in the same run.
func compare(results []result) {
	for i, r := range results {
		for _, other := range results {
			mine, ok := r.Figures["cpuUs"]
			if ok && other.Work == r.Work && other.Setting == r.Setting && other.Client == plain.name &&
				r.Client != plain.name {
				results[i].Figures["cpuUsOverPlain"] = mine - other.Figures["cpuUs"]
			}
		}
	}
}

func (rep *report) save(file string) error {
	data, err := json.MarshalIndent(rep, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}

// write writes the report into the folder out. If docs is set, it also fills the documents.
func (rep *report) write(done []work, out, docs string) error {
	compare(rep.Results)
	if err := rep.save(filepath.Join(out, "results.json")); err != nil {
		return err
	}
	results, cost := "", ""
	for _, w := range done {
		if strings.HasPrefix(w.name, "cost") {
			cost += rep.section(w)
		} else {
			results += rep.section(w)
		}
	}
	if cost != "" {
		cost += rep.model()
	}
	if results != "" {
		results = rep.facts() + results
	} else {
		cost = rep.facts() + cost
	}
	fmt.Print(results, cost)
	if err := os.WriteFile(filepath.Join(out, "results.md"), []byte(results+cost), 0o644); err != nil {
		return err
	}
	if err := rep.draw(done, filepath.Join(out, "img")); err != nil || docs == "" {
		return err
	}
	inDocs := func(text string) string { return strings.ReplaceAll(text, `"img/`, `"../docs/img/`) }
	if err := fill(resultsFile, map[string]string{"results": inDocs(results), "cost": inDocs(cost)}); err != nil {
		return err
	}
	return redraw(done, docs) // from the tables, whose figures are rounded
}

// facts names the computer and the versions of the run.
func (rep *report) facts() string {
	m := rep.Machine
	var text strings.Builder
	fmt.Fprintf(&text, "Measured %s on %d cores (%s, %s) that the broker shares, load %s before; %s.",
		m.When.Format(time.DateOnly),
		m.Cores, m.CPU, m.System, m.Load, strings.Join(m.Versions, ", "))
	if rep.Quick {
		text.WriteString(" A quick run: sizes are smaller than usual.")
	}
	for _, line := range rep.Left {
		text.WriteString(" Left out: " + line + ".")
	}
	return text.String() + "\n\n"
}

// section returns a work's part of the report: a heading, what was done, the table and the picture.
func (rep *report) section(w work) string {
	rows := slices.DeleteFunc(slices.Clone(rep.Results), func(r result) bool { return r.Work != w.name })
	if len(rows) == 0 {
		return ""
	}
	var b strings.Builder
	title := w.title
	if !strings.HasPrefix(w.name, "cost") {
		title = w.name + " " + title
	}
	fmt.Fprintf(&b, "### %s\n\n%s", title, w.text)
	for _, c := range w.clients {
		if c.note != "" && slices.ContainsFunc(rows, func(r result) bool { return r.Client == c.name }) {
			b.WriteString(" " + c.note)
		}
	}
	b.WriteString("\n\n| | |")
	for _, c := range w.columns {
		b.WriteString(" " + c.title + " |")
	}
	b.WriteString("\n|---|---|" + strings.Repeat("--:|", len(w.columns)) + "\n")
	last := ""
	for _, r := range rows {
		name := r.Setting
		if name == last {
			name = ""
		}
		last = r.Setting
		fmt.Fprintf(&b, "| %s | %s |", name, r.Client)
		for i, c := range w.columns {
			cell := ""
			if len(r.Figures) == 0 && r.Failed == "" && i == 0 {
				cell = "none"
			} else if r.Failed != "" {
				cell = "failed"
			} else if f, ok := r.Figures[c.figure]; ok {
				cell = strings.Replace(fmt.Sprintf(c.format, f), "-", "−", 1)
			}
			fmt.Fprintf(&b, " %s |", cell)
		}
		b.WriteString("\n")
	}
	if _, ok := pictures[w.name]; ok {
		b.WriteString("\n" + pictureTag(w.name, w.title))
	}
	return b.String() + "\n"
}

// fill puts texts between the lines <!-- begin name --> and <!-- end name --> of a file. An empty text changes nothing.
func fill(file string, texts map[string]string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	doc := string(data)
	for name, text := range texts {
		begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->\n"
		head, rest, ok := strings.Cut(doc, begin)
		_, tail, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			return fmt.Errorf("%s: want the lines %q and %q", file, strings.TrimSpace(begin), strings.TrimSpace(end))
		}
		if text != "" {
			doc = head + begin + "\n" + text + end + tail
		}
	}
	return os.WriteFile(file, []byte(doc), 0o644)
}
