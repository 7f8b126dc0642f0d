package worker_test

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"time"
)

var picture = flag.String("picture", "", "have TestTwoMinutesDown draw what it saw into this `file`: docs/img/outage.svg")

// drawDowntimes draws how often handlers called the database, with plain nacks and with a pause on failure.
func drawDowntimes(plain, paused downtimeResult) []byte {
	var b bytes.Buffer
	fmt.Fprint(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 430" font-family="sans-serif" font-size="12">
<rect width="760" height="430" fill="white"/>
`)
	drawCalls(&b, 30, fmt.Sprintf("Plain nacks: %d calls while it is down, %d dead letters", plain.down, plain.dead), "#e67e22", plain)
	drawCalls(&b, 235, fmt.Sprintf("WithPauseOnFailure: %d calls while it is down, %d dead letters, back after %.1f s", paused.down, paused.dead,
		paused.back.Seconds()), "#1f77b4", paused)
	fmt.Fprint(&b, "</svg>\n")
	return b.Bytes()
}

// drawCalls draws calls a second, each bar of five seconds, on a logarithmic scale from 0.1 to 1,000.
func drawCalls(b *bytes.Buffer, top float64, title, color string, r downtimeResult) {
	const (
		left, height = 60, 140
		perSecond    = 2.0
		bin          = 5
		until        = 330
	)
	y := func(rate float64) float64 { return top + 20 + height*(3-math.Log10(max(0.1, rate)))/4 }
	fmt.Fprintf(b, `<text x="%d" y="%.0f" font-size="14">%s</text>`+"\n", left, top+8, title)
	fmt.Fprintf(b, `<rect x="%.1f" y="%.0f" width="%.1f" height="%d" fill="#d62728" fill-opacity="0.12"/>`+"\n",
		left+downFrom.Seconds()*perSecond, top+20, (downTo-downFrom).Seconds()*perSecond, height)
	fmt.Fprintf(b, `<text x="%.1f" y="%.0f" fill="#d62728" text-anchor="middle">the database is down</text>`+"\n",
		left+(downFrom+downTo).Seconds()/2*perSecond, top+34)
	for _, rate := range []float64{0.1, 1, 10, 100, 1000} {
		fmt.Fprintf(b, `<line x1="%d" x2="%.0f" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%v/s</text>`+"\n",
			left, left+until*perSecond, y(rate), y(rate), left-6, y(rate)+4, rate)
	}
	var calls [until / bin]int
	for _, at := range r.calls {
		if i := int(at / (bin * time.Second)); i < len(calls) {
			calls[i]++
		}
	}
	for i, n := range calls {
		if n > 0 {
			fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", left+float64(i*bin)*perSecond,
				y(float64(n)/bin), bin*perSecond-0.8, y(0)-y(float64(n)/bin), color)
		}
	}
	for minute := 0; minute*60 <= until; minute++ {
		fmt.Fprintf(b, `<text x="%.1f" y="%.0f" text-anchor="middle">%d min</text>`+"\n", left+float64(minute)*60*perSecond, y(0)+16, minute)
	}
}
