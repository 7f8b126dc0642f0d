package worker_test

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var picture = flag.String("picture", "", "the `folder` into which the tests of outages draw their results, such as ../docs/img")

// panel is a diagram of how many events happen per second.
type panel struct {
	title, color string
	at           []time.Duration // when the events happened
}

// draw writes a picture into the folder of -picture: the panels, one below the other. It marks the time from begin to
// end with the label what.
func draw(t testing.TB, file, what string, begin, end time.Duration, panels ...panel) {
	if *picture == "" {
		return
	}
	var b bytes.Buffer
	height := 20 + 205*len(panels)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 %d" font-family="sans-serif" font-size="12">
<rect width="760" height="%d" fill="white"/>
`, height, height)
	for i, p := range panels {
		drawPanel(&b, float64(30+205*i), what, begin, end, p)
	}
	fmt.Fprint(&b, "</svg>\n")
	require.NoError(t, os.WriteFile(filepath.Join(*picture, file), b.Bytes(), 0o644))
}

// drawPanel draws one panel, with a bar for every five seconds, on a logarithmic scale from 0.1 to 1,000 a second.
func drawPanel(b *bytes.Buffer, top float64, what string, begin, end time.Duration, p panel) {
	const (
		left, height = 60, 140
		perSecond    = 2.0
		bin          = 5
		until        = 330
	)
	y := func(rate float64) float64 { return top + 20 + height*(3-math.Log10(max(0.1, rate)))/4 }
	fmt.Fprintf(b, `<text x="%d" y="%.0f" font-size="14">%s</text>`+"\n", left, top+8, p.title)
	fmt.Fprintf(b, `<rect x="%.1f" y="%.0f" width="%.1f" height="%d" fill="#d62728" fill-opacity="0.12"/>`+"\n",
		left+begin.Seconds()*perSecond, top+20, max(1, (end-begin).Seconds()*perSecond), height)
	fmt.Fprintf(b, `<text x="%.1f" y="%.0f" fill="#d62728" text-anchor="middle">%s</text>`+"\n",
		left+(begin+end).Seconds()/2*perSecond, top+34, what)
	for _, rate := range []float64{0.1, 1, 10, 100, 1000} {
		fmt.Fprintf(b, `<line x1="%d" x2="%.0f" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%v/s</text>`+"\n",
			left, left+until*perSecond, y(rate), y(rate), left-6, y(rate)+4, rate)
	}
	var calls [until / bin]int
	for _, at := range p.at {
		if i := int(at / (bin * time.Second)); i < len(calls) {
			calls[i]++
		}
	}
	for i, n := range calls {
		if n > 0 {
			fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", left+float64(i*bin)*perSecond,
				y(float64(n)/bin), bin*perSecond-0.8, y(0)-y(float64(n)/bin), p.color)
		}
	}
	for minute := 0; minute*60 <= until; minute++ {
		fmt.Fprintf(b, `<text x="%.1f" y="%.0f" text-anchor="middle">%d min</text>`+"\n", left+float64(minute)*60*perSecond, y(0)+16, minute)
	}
}

const orange, blue = "#e67e22", "#1f77b4"
