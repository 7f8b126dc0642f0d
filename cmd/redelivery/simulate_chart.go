package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/simulate"
)

// write writes a table of all variants, and a chart of each.
func (s *simulation) write(w io.Writer, all []variant) {
	fmt.Fprintf(w, "%.4g messages a second for %d × %d handlers of %v; %s for %s\n\n", s.Rate, s.Instances,
		s.Concurrency, s.Handler,
		s.whatFails(), formatDelay(seconds(s.Outage)))
	table := [][]string{{"", "calls", "a second", "backlog", "waiting", "dead", "recovered"}}
	for _, v := range all {
		table = append(table, []string{v.Name, fmt.Sprint(v.Calls), fmt.Sprintf("%.0f", v.Peak), fmt.Sprint(v.Backlog),
			fmt.Sprint(v.Waiting),
			fmt.Sprint(v.Dead), s.recovery(v.Result)})
	}
	for _, line := range align(table) {
		fmt.Fprintln(w, line)
	}
	fmt.Fprint(w, `
calls: the sum in the outage; a second, backlog, waiting: the highest values;
recovered: time after the outage until at most a second's messages are unsettled
`)
	for _, v := range all {
		fmt.Fprintf(w, "\n%s\n", v.Name)
		s.chart(w, v.Result)
	}
}

func (s *simulation) whatFails() string {
	if s.Partial >= 1 {
		return "all calls fail"
	}
	return fmt.Sprintf("%.4g%% of the calls fail", 100*s.Partial)
}

func (s *simulation) recovery(r simulate.Result) string {
	if !r.Recovered {
		return "not within " + formatDelay(seconds(s.Longest))
	}
	return "after " + formatDelay(seconds(r.After.Round(100*time.Millisecond)))
}

const chartColumns = 56

var eighthsUp = []rune(" ▁▂▃▄▅▆▇█")

// chart writes a line with each figure over time, and one that shows when the outage is.
func (s *simulation) chart(w io.Writer, r simulate.Result) {
	rate := 1 / r.Step.Seconds()
	line := func(name string, of func(simulate.Point) float64) {
		figures := squeeze(r.Points, of)
		most := 0.0
		for _, f := range figures {
			most = max(most, f)
		}
		bars := make([]rune, len(figures))
		for i, f := range figures {
			n := 0
			if f > 0 {
				n = max(1, int(math.Round(f/most*8)))
			}
			bars[i] = eighthsUp[n]
		}
		fmt.Fprintf(w, "  %-8s %-*s %.0f\n", name, chartColumns, string(bars), most)
	}
	line("calls/s", func(p simulate.Point) float64 { return float64(p.Calls) * rate })
	line("backlog", func(p simulate.Point) float64 { return float64(p.Backlog) })
	line("waiting", func(p simulate.Point) float64 { return float64(p.Waiting) })
	line("dead", func(p simulate.Point) float64 { return float64(p.Dead) })
	whole := time.Duration(len(r.Points)) * r.Step
	n := min(chartColumns, len(r.Points))
	at := func(t time.Duration) int { return min(n, int(math.Round(float64(t)/float64(whole)*float64(n)))) }
	from, to := at(s.Before), at(s.Before+s.Outage)
	fmt.Fprintf(w, "  %-8s %-*s of %s\n", "outage", chartColumns,
		strings.Repeat(" ", from)+strings.Repeat("░", max(1, to-from)), formatDelay(seconds(whole)))
}

// squeeze combines points into at most chartColumns columns, each with the largest figure of its points.
func squeeze(points []simulate.Point, of func(simulate.Point) float64) []float64 {
	n := min(chartColumns, len(points))
	figures := make([]float64, n)
	for i, p := range points {
		figures[i*n/len(points)] = max(figures[i*n/len(points)], of(p))
	}
	return figures
}
