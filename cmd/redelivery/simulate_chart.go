package main

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"math"
	"strings"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/simulate"
)

// write writes a table of all, and a chart of each.
func (s *simulation) write(w io.Writer, all []variant) {
	fmt.Fprintf(w, "%.4g messages a second for %d × %d handlers of %v; %s for %s\n\n", s.Rate, s.Instances, s.Concurrency, s.Handler,
		s.whatFails(), formatDelay(seconds(s.Outage)))
	table := [][]string{{"", "calls", "a second", "backlog", "waiting", "dead", "recovered"}}
	for _, v := range all {
		table = append(table, []string{v.Name, fmt.Sprint(v.Calls), fmt.Sprintf("%.0f", v.Peak), fmt.Sprint(v.Backlog), fmt.Sprint(v.Waiting),
			fmt.Sprint(v.Dead), s.recovery(v.Result)})
	}
	for _, line := range align(table) {
		fmt.Fprintln(w, line)
	}
	fmt.Fprint(w, `
calls: during the outage; a second, backlog, waiting: the most at a time;
recovered: when at most as many messages are unsettled as arrive in a second
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

// chart has a line for each figure over time, and one for the outage.
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
	fmt.Fprintf(w, "  %-8s %-*s %s in all\n", "outage", chartColumns, strings.Repeat(" ", from)+strings.Repeat("░", max(1, to-from)), formatDelay(seconds(whole)))
}

// squeeze makes at most as many columns of the points as there is room for: the most of each.
func squeeze(points []simulate.Point, of func(simulate.Point) float64) []float64 {
	n := min(chartColumns, len(points))
	figures := make([]float64, n)
	for i, p := range points {
		figures[i*n/len(points)] = max(figures[i*n/len(points)], of(p))
	}
	return figures
}

// picture draws calls a second of each variant on a logarithmic scale, and what is unsettled as a line.
func (s *simulation) picture(all []variant) []byte {
	const (
		left, wide, height, gap = 60.0, 660.0, 110.0, 175.0
	)
	var longest time.Duration
	mostCalls, mostWaiting := 1.0, 1.0
	for _, v := range all {
		longest = max(longest, time.Duration(len(v.Points))*v.Step)
		mostCalls = max(mostCalls, v.Peak)
		mostWaiting = max(mostWaiting, float64(v.Unsettled))
	}
	decades := math.Ceil(math.Log10(mostCalls)) + 1
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 %.0f" font-family="sans-serif" font-size="12">`+"\n"+
		`<rect width="760" height="%.0f" fill="white"/>`+"\n", gap*float64(len(all))+10, gap*float64(len(all))+10)
	x := func(t time.Duration) float64 { return left + float64(t)/float64(longest)*wide }
	for n, v := range all {
		top := 25 + gap*float64(n)
		y := func(rate float64) float64 { return top + height*(decades-1-math.Log10(max(0.1, rate)))/decades }
		title := fmt.Sprintf("%s: %d calls in the outage, %d dead letters, recovered %s", v.Name, v.Calls, v.Dead, s.recovery(v.Result))
		fmt.Fprintf(&b, `<text x="%.0f" y="%.1f" font-size="14">%s</text>`+"\n", left, top-7, html.EscapeString(title))
		fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.0f" fill="#d62728" fill-opacity="0.12"/>`+"\n", x(s.Before), top,
			x(s.Before+s.Outage)-x(s.Before), height)
		for rate := 0.1; rate <= math.Pow(10, decades-1); rate *= 10 {
			fmt.Fprintf(&b, `<line x1="%.0f" x2="%.0f" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%.0f" y="%.1f" text-anchor="end">%.4g/s</text>`+"\n",
				left, left+wide, y(rate), y(rate), left-6, y(rate)+4, rate)
		}
		var line strings.Builder
		for i, p := range v.Points {
			from := time.Duration(i) * v.Step
			if rate := float64(p.Calls) / v.Step.Seconds(); rate > 0 {
				fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.2f" height="%.1f" fill="#1f77b4"/>`+"\n", x(from), y(rate),
					x(v.Step)-left, y(0)-y(rate))
			}
			fmt.Fprintf(&line, "%.1f,%.1f ", x(from+v.Step), top+height*(1-float64(p.Backlog+p.Waiting)/mostWaiting))
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="#e67e22" stroke-width="1.5"/>`+"\n", strings.TrimSpace(line.String()))
		fmt.Fprintf(&b, `<text x="%.0f" y="%.1f">0</text><text x="%.0f" y="%.1f" text-anchor="end">%s</text>`+"\n", left, top+height+15, left+wide,
			top+height+15, formatDelay(seconds(longest)))
		fmt.Fprintf(&b, `<text x="%.0f" y="%.1f" text-anchor="middle">calls a second (bars), backlog and waiting (line, up to %.0f)</text>`+"\n",
			left+wide/2, top+height+15, mostWaiting)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
