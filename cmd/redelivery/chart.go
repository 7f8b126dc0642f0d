package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pulsar-redelivery/redelivery/internal/durations"
)

// writeCharts writes a table with a bar for each redelivery. The part of a bar that jitter may remove or add is shaded.
func writeCharts(w io.Writer, plans []plan, workers []workerPlan) error {
	var b strings.Builder
	for i, p := range plans {
		if i > 0 {
			b.WriteString("\n")
		}
		p.write(&b)
	}
	for i, p := range workers {
		if i > 0 || len(plans) > 0 {
			b.WriteString("\n")
		}
		p.write(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (p plan) write(b *strings.Builder) {
	rows := p.Redeliveries
	if p.Dead != nil {
		rows = append(slices.Clip(rows), *p.Dead)
	}
	var longest seconds
	jitter := false
	for _, r := range rows {
		longest = max(longest, r.Longest)
		jitter = jitter || r.Shortest != r.Longest
	}
	table := [][]string{{"redelivery", "delay", "total"}}
	if jitter {
		table[0] = []string{"redelivery", "delay", "shortest", "longest", "total"}
	}
	for _, r := range rows {
		number := strconv.Itoa(r.Redelivery)
		if r.Redelivery == 0 {
			number = "dead"
			if p.Discard {
				number = "discarded"
			}
		}
		cells := []string{number, formatDelay(r.Delay), formatDelay(r.Total)}
		if jitter {
			cells = []string{number, formatDelay(r.Delay), formatDelay(r.Shortest), formatDelay(r.Longest),
				formatDelay(r.Total)}
		}
		table = append(table, cells)
	}
	lines := align(table)
	room := width - utf8.RuneCountInString(lines[0]) - 2
	fmt.Fprintf(b, "%s\n%s\n", p.title(), lines[0])
	for i, r := range rows {
		if r.Redelivery == 0 && p.gap() {
			fmt.Fprintf(b, "%*s\n", len("redelivery"), "...")
		}
		b.WriteString(strings.TrimRight(lines[i+1]+"  "+bar(r, longest, room), " ") + "\n")
	}
	if p.deliveries() == 0 {
		return
	}
	end := "Dead letter"
	if p.Discard {
		end = "Discarded"
	}
	if p.Of == reconsumed {
		fmt.Fprintf(b, "%s in place of retry %d", end, p.deliveries())
	} else {
		fmt.Fprintf(b, "%s after delivery %d", end, p.deliveries())
	}
	if p.Dead != nil {
		fmt.Fprintf(b, ", %s after the first", strings.Replace(formatDelay(p.Dead.Total), ">", "more than ", 1))
	}
	b.WriteString(".\n")
	if p.Warning != "" {
		fmt.Fprintf(b, "Warning: %s.\n", p.Warning)
	}
}

// deliveries returns how often the message is delivered before it becomes a dead letter; 0 if it never does.
func (p plan) deliveries() uint64 {
	if p.MaxReconsumes > 0 {
		return p.MaxReconsumes + 1
	}
	return p.MaxDeliveries
}

// gap reports whether some redeliveries are not shown.
func (p plan) gap() bool { return uint64(len(p.Redeliveries))+1 < p.deliveries() }

func (p plan) title() string {
	title := map[string]string{nacked: "negatively acknowledged", reconsumed: "reconsumed",
		timedOut: fmt.Sprintf("not settled within the ack timeout of %s", formatDelay(p.AckTimeout))}[p.Of]
	if p.Name != "" {
		return shorten(p.Name) + ": " + title
	}
	return title
}

// shorten makes the name of a consumer, a worker or a policy fit a line.
func shorten(name string) string {
	runes := []rune(strconv.Quote(name)[1:])
	runes = runes[:len(runes)-1]
	if len(runes) > 25 {
		runes = append(runes[:24], '…')
	}
	return string(runes)
}

// align returns rows as lines. Each cell is as wide as the widest one of its column.
func align(table [][]string) []string {
	widths := make([]int, len(table[0]))
	for _, row := range table {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	lines := make([]string, len(table))
	for i, row := range table {
		for j, cell := range row {
			lines[i] += strings.Repeat(" ", widths[j]-len(cell)) + cell
			if j < len(row)-1 {
				lines[i] += "  "
			}
		}
	}
	return lines
}

var eighths = []string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}

// bar draws the delay of r. A delay of longest fills room columns.
func bar(r redelivery, longest seconds, room int) string {
	if longest == 0 {
		return ""
	}
	scale := func(s seconds) float64 { return float64(s) / float64(longest) * float64(room) }
	if r.Shortest == r.Longest {
		n := math.Round(scale(r.Delay) * 8)
		if r.Delay > 0 {
			n = max(n, 1)
		}
		return strings.Repeat("█", int(n)/8) + eighths[int(n)%8]
	}
	full, shaded := int(math.Round(scale(r.Shortest))), int(math.Ceil(scale(r.Longest)))
	return strings.Repeat("█", full) + strings.Repeat("░", shaded-full)
}

func formatFloat(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

// formatDelay formats a delay as 250ms, 11s, 1m30s, 2h, 3d4h, or >106751d if it overflows.
func formatDelay(s seconds) string {
	const day = 24 * time.Hour
	d := time.Duration(s)
	switch {
	case d == math.MaxInt64:
		return fmt.Sprintf(">%dd", d/day)
	case d >= 100*day:
		return fmt.Sprintf("%dd", d/day)
	case d >= 2*day && d%day < time.Hour:
		return fmt.Sprintf("%dd", d/day)
	case d >= 2*day:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	case d >= time.Minute:
		d = d.Round(time.Second)
	default:
		d = d.Round(time.Millisecond)
	}
	return durations.Short(d)
}
