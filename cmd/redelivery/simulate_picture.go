package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/simulate"
)

// The positions and sizes of a picture's parts. Each variant has a panel.
const (
	panelLeft, panelWide    = 70.0, 620.0
	panelHigh, panelGap     = 110.0, 175.0
	pictureWide, pictureTop = 760.0, 62.0
)

// pictureStyle follows the light or dark mode of the reader's browser.
const pictureStyle = `<style>
text { fill: #1f2328 } .page { fill: #ffffff } .grid { stroke: #d1d9e0 } .outage { fill: #cf222e; fill-opacity: 0.12 }
.calls { fill: #0969da; fill-opacity: 0.55 } .callsText { fill: #0969da } .unsettled { stroke: #bc4c00 } .unsettledText { fill: #bc4c00 }
.dead { stroke: #1f2328; stroke-dasharray: 5 3 }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc } .page { fill: #0d1117 } .grid { stroke: #3d444d } .outage { fill: #f85149; fill-opacity: 0.2 }
.calls { fill: #4493f8; fill-opacity: 0.55 } .callsText { fill: #4493f8 } .unsettled { stroke: #db6d28 } .unsettledText { fill: #db6d28 }
.dead { stroke: #f0f6fc }
}
</style>
`

// picture draws each variant: calls a second as bars on the left axis, unsettled messages and dead letters as lines on
// the right axis. Both axes are linear, and the same in all panels. A variant with nearly the figures of an earlier one
// has no panel.
func (s *simulation) picture(all []variant) []byte {
	drawn, left := different(all)
	var longest time.Duration
	calls, messages := 0.0, 0.0
	for _, v := range drawn {
		longest = max(longest, time.Duration(len(v.Points))*v.Step)
		for _, p := range v.Points {
			calls = max(calls, float64(p.Calls)/v.Step.Seconds())
			messages = max(messages, float64(p.Backlog+p.Waiting), float64(p.Dead))
		}
	}
	high := pictureTop + panelGap*float64(len(drawn)) + 18*float64(len(left)) - 10
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="12">`+"\n%s"+
		`<rect class="page" width="%.0f" height="%.0f"/>`+"\n", pictureWide, high, pictureStyle, pictureWide, high)
	fmt.Fprintf(&b, `<rect class="calls" x="%.0f" y="12" width="12" height="12"/><text x="%.0f" y="22">calls a second (left)</text>`+"\n",
		panelLeft, panelLeft+18)
	for i, line := range []struct{ class, text string }{{"unsettled", "backlog and waiting messages (right)"},
		{"dead", "dead letters (right)"}} {
		x := panelLeft + 170 + 260*float64(i)
		fmt.Fprintf(&b, `<line class="%s" x1="%.0f" x2="%.0f" y1="18" y2="18" stroke-width="2"/><text x="%.0f" y="22">%s</text>`+"\n", line.class, x, x+22, x+28,
			line.text)
	}
	at := scales{longest, axisOf(calls), axisOf(max(messages, 5))}
	for i, v := range drawn {
		s.drawPanel(&b, pictureTop+panelGap*float64(i), at, v)
	}
	for i, text := range left {
		fmt.Fprintf(&b, `<text x="%.0f" y="%.0f">%s</text>`+"\n", panelLeft,
			pictureTop+panelGap*float64(len(drawn))+18*float64(i)-10, html.EscapeString(text))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// alike is the largest difference, as a fraction, between the figures of two variants that share a panel.
const alike = 0.05

// different returns the variants that differ from all earlier ones, and a line of text for each other variant.
func different(all []variant) (drawn []variant, left []string) {
	for _, v := range all {
		same := slices.IndexFunc(drawn, func(d variant) bool { return areAlike(d.Result, v.Result) })
		if same < 0 {
			drawn = append(drawn, v)
		} else {
			left = append(left, fmt.Sprintf("%s: like “%s”, within %.0f %%", v.Name, drawn[same].Name, 100*alike))
		}
	}
	return drawn, left
}

func areAlike(a, b simulate.Result) bool {
	near := func(x, y float64) bool { return math.Abs(x-y) <= alike*max(x, y) }
	return a.Recovered == b.Recovered && near(float64(a.Calls), float64(b.Calls)) &&
		near(float64(a.Dead), float64(b.Dead)) &&
		near(float64(a.Unsettled), float64(b.Unsettled)) && near(a.Peak, b.Peak) &&
		near(a.After.Seconds(), b.After.Seconds())
}

// scales has the scales of all panels.
type scales struct {
	longest         time.Duration
	calls, messages axis
}

func (s scales) x(t time.Duration) float64 {
	return panelLeft + float64(t)/float64(s.longest)*panelWide
}

// axis is a linear axis, from 0 to a multiple of step.
type axis struct{ step, most float64 }

// axisOf returns an axis of two to five steps. A step is 1, 2 or 5 times a power of ten.
func axisOf(most float64) axis {
	step := math.Pow(10, math.Floor(math.Log10(max(most, 1))))
	for _, divisor := range []float64{5, 2, 1} {
		if n := math.Ceil(most / (step / divisor)); n <= 5 {
			step /= divisor
			break
		}
	}
	for math.Ceil(most/step) > 5 {
		step *= 2
	}
	return axis{step, step * max(1, math.Ceil(most/step))}
}

// y returns the vertical position of a value in a panel.
func (a axis) y(top, value float64) float64 { return top + panelHigh*(1-value/a.most) }

func (s *simulation) drawPanel(b *bytes.Buffer, top float64, at scales, v variant) {
	title := fmt.Sprintf("%s: %d calls in the outage, %d dead letters, recovered %s", v.Name, v.Calls, v.Dead,
		s.recovery(v.Result))
	fmt.Fprintf(b, `<text x="%.0f" y="%.1f" font-size="14">%s</text>`+"\n", panelLeft, top-9, html.EscapeString(title))
	fmt.Fprintf(b, `<rect class="outage" x="%.1f" y="%.1f" width="%.1f" height="%.0f"/>`+"\n", at.x(s.Before), top,
		at.x(s.Before+s.Outage)-at.x(s.Before), panelHigh)
	for rate := 0.0; rate <= at.calls.most; rate += at.calls.step {
		fmt.Fprintf(b, `<line class="grid" x1="%.0f" x2="%.0f" y1="%.1f" y2="%[3]f"/><text class="callsText" x="%.0f" y="%.1f" text-anchor="end">%s</text>`+"\n",
			panelLeft, panelLeft+panelWide, at.calls.y(top, rate), panelLeft-6, at.calls.y(top, rate)+4,
			withThousands(rate)+"/s")
	}
	for n := 0.0; n <= at.messages.most; n += at.messages.step {
		fmt.Fprintf(b, `<text class="unsettledText" x="%.0f" y="%.1f">%s</text>`+"\n", panelLeft+panelWide+6,
			at.messages.y(top, n)+4, withThousands(n))
	}
	for i, p := range v.Points {
		if rate := float64(p.Calls) / v.Step.Seconds(); rate > 0 {
			y := at.calls.y(top, rate)
			fmt.Fprintf(b, `<rect class="calls" x="%.1f" y="%.1f" width="%.2f" height="%.1f"/>`+"\n",
				at.x(time.Duration(i)*v.Step), y,
				at.x(v.Step)-panelLeft, top+panelHigh-y)
		}
	}
	for _, line := range []struct {
		class string
		of    func(simulate.Point) int
	}{
		{"unsettled", func(p simulate.Point) int { return p.Backlog + p.Waiting }},
		{"dead", func(p simulate.Point) int { return p.Dead }},
	} {
		var points strings.Builder
		for i, p := range v.Points {
			fmt.Fprintf(&points, "%.1f,%.1f ", at.x(time.Duration(i+1)*v.Step), at.messages.y(top, float64(line.of(p))))
		}
		fmt.Fprintf(b, `<polyline class="%s" points="%s" fill="none" stroke-width="1.5"/>`+"\n", line.class,
			strings.TrimSpace(points.String()))
	}
	fmt.Fprintf(b, `<text x="%.0f" y="%.1f">0</text>`+"\n", panelLeft, top+panelHigh+16)
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle">outage of %s</text>`+"\n",
		(at.x(s.Before)+at.x(s.Before+s.Outage))/2, top+panelHigh+16,
		formatDelay(seconds(s.Outage)))
	fmt.Fprintf(b, `<text x="%.0f" y="%.1f" text-anchor="end">%s</text>`+"\n", panelLeft+panelWide, top+panelHigh+16,
		formatDelay(seconds(at.longest)))
}

// withThousands formats 20000 as 20,000, and 0.5 as 0.5.
func withThousands(x float64) string {
	text := fmt.Sprintf("%.12g", x)
	for i := len(text) - 3; i > 0 && !strings.ContainsAny(text, ".e"); i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
