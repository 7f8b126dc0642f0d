package deploy_test

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// draw draws panels with the data of Prometheus, as SVG: two in a row, each with lines or a heatmap.
func draw(p *prometheus, panels []panel, dark bool) []byte {
	c := &canvas{ink: "#1f2328", faint: "#d0d7de", paper: "#ffffff",
		lines: []string{"#0969da", "#bc4c00", "#1a7f37", "#8250df", "#cf222e"}}
	if dark {
		c = &canvas{ink: "#e6edf3", faint: "#3d444d", paper: "#0d1117",
			lines: []string{"#58a6ff", "#f0883e", "#3fb950", "#bc8cff", "#ff7b72"}}
	}
	rows := (len(panels) + 1) / 2
	fmt.Fprintf(c, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n", 2*panelWidth, rows*panelHeight)
	fmt.Fprintf(c, `<rect width="100%%" height="100%%" fill="%s"/>`+"\n", c.paper)
	for i, panel := range panels {
		fmt.Fprintf(c, `<g transform="translate(%d %d)">`+"\n", i%2*panelWidth, i/2*panelHeight)
		fmt.Fprintf(c, `<text x="%d" y="20" font-size="13" font-weight="bold" fill="%s">%s</text>`+"\n", left, c.ink,
			html.EscapeString(panel.Title))
		if panel.Type == "heatmap" {
			c.heatmap(p, panel)
		} else {
			c.plot(p, panel)
		}
		fmt.Fprintln(c, "</g>")
	}
	fmt.Fprintln(c, "</svg>")
	return c.Bytes()
}

const (
	panelWidth, panelHeight  = 480, 240
	left, right, top, bottom = 48, 12, 32, 48
	width, height            = panelWidth - left - right, panelHeight - top - bottom
)

type canvas struct {
	bytes.Buffer
	ink, faint, paper string
	lines             []string
}

// shown returns how long a time the pictures show. The expressions also need the ten seconds before this time.
func shown() time.Duration { return *scrape - 12*time.Second }

type line struct {
	name   string
	values map[int64]float64
}

// lines returns the lines of a panel's targets, and the times of their points.
func lines(p *prometheus, panel panel) (all []line, moments []int64, most float64) {
	for _, target := range panel.Targets {
		for _, s := range p.history(query(target.Expr), shown()) {
			l := line{target.LegendFormat, map[int64]float64{}}
			for label, value := range s.Metric {
				l.name = strings.ReplaceAll(l.name, "{{"+label+"}}", value)
			}
			for _, v := range s.Values {
				at := int64(v[0].(float64))
				value, err := strconv.ParseFloat(v[1].(string), 64)
				if err != nil || math.IsNaN(value) {
					continue
				}
				l.values[at] = value
				most = max(most, value)
				if !slices.Contains(moments, at) {
					moments = append(moments, at)
				}
			}
			all = append(all, l)
		}
	}
	slices.Sort(moments)
	slices.SortFunc(all, func(a, b line) int { return strings.Compare(a.name, b.name) })
	return all, moments, most
}

func (c *canvas) plot(p *prometheus, panel panel) {
	all, moments, most := lines(p, panel)
	most = round(most)
	c.axis()
	for i := range 5 {
		y := float64(top) + float64(height)*(1-float64(i)/4)
		fmt.Fprintf(c, `<path d="M%d %.1fh%d" stroke="%s"/><text x="%d" y="%.1f" text-anchor="end" fill="%s">%s</text>`+"\n",
			left, y, width, c.faint, left-6, y+4, c.ink, label(most*float64(i)/4, panel.FieldConfig.Defaults.Unit))
	}
	x := left
	for i, l := range all {
		var path strings.Builder
		for n, at := range moments {
			value, ok := l.values[at]
			if !ok {
				continue
			}
			command := "L"
			if path.Len() == 0 {
				command = "M"
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", command,
				float64(left)+float64(width)*float64(n)/float64(max(1, len(moments)-1)),
				float64(top)+float64(height)*(1-value/most))
		}
		color := c.lines[i%len(c.lines)]
		fmt.Fprintf(c, `<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", path.String(), color)
		fmt.Fprintf(c, `<rect x="%d" y="%d" width="10" height="3" fill="%s"/><text x="%d" y="%d" fill="%s">%s</text>`+"\n",
			x, panelHeight-18, color, x+14, panelHeight-13, c.ink, html.EscapeString(l.name))
		x += 26 + 6*len(l.name)
	}
}

// heatmap draws a row for each bucket. The counts of Prometheus's buckets are cumulative.
func (c *canvas) heatmap(p *prometheus, panel panel) {
	all, moments, _ := lines(p, panel)
	bound := func(l line) float64 {
		v, err := strconv.ParseFloat(l.name, 64)
		if err != nil {
			p.Errorf("bucket %q: %v", l.name, err)
		}
		return v
	}
	slices.SortFunc(all, func(a, b line) int { return int(math.Copysign(1, bound(a)-bound(b))) })
	most := 1e-9
	in := func(i int, at int64) float64 {
		v := all[i].values[at]
		if i > 0 {
			v -= all[i-1].values[at]
		}
		return max(0, v)
	}
	for i := range all {
		for _, at := range moments {
			most = max(most, in(i, at))
		}
	}
	c.axis()
	h, w := float64(height)/float64(len(all)), float64(width)/float64(len(moments))
	for i, l := range all {
		y := float64(top) + float64(height) - h*float64(i+1)
		if i%2 == 0 {
			name := "more"
			if b := bound(l); !math.IsInf(b, 1) {
				name = label(b, panel.FieldConfig.Defaults.Unit)
			}
			fmt.Fprintf(c, `<text x="%d" y="%.1f" text-anchor="end" fill="%s">%s</text>`+"\n", left-6, y+4, c.ink, name)
		}
		for n, at := range moments {
			if v := in(i, at); v > 0 {
				fmt.Fprintf(c, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" fill-opacity="%.2f"/>`+"\n",
					float64(left)+w*float64(n), y, w, h, c.lines[1], 0.15+0.85*math.Sqrt(v/most))
			}
		}
	}
	fmt.Fprintf(c, `<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="%s"/>`+"\n", left, top, width,
		height, c.faint)
	fmt.Fprintf(c, `<text x="%d" y="%d" fill="%s">each row is a bucket; a stronger color is more messages</text>`+"\n",
		left, panelHeight-13, c.ink)
}

// axis draws the axis of time.
func (c *canvas) axis() {
	fmt.Fprintf(c, `<text x="%d" y="%d" fill="%s">%v ago</text><text x="%d" y="%d" text-anchor="end" fill="%s">now</text>`+"\n",
		left, panelHeight-34, c.ink, shown(), panelWidth-right, panelHeight-34, c.ink)
}

// round returns a round number, at least most, at which an axis of four parts can end.
func round(most float64) float64 {
	if most == 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(most)))
	for _, part := range []float64{1, 2, 4, 6, 8, 10} {
		if most <= part*power {
			return part * power
		}
	}
	return most
}

// label returns a figure with its unit.
func label(v float64, unit string) string {
	switch {
	case unit == "s" && v > 0 && v < 1:
		return fmt.Sprintf("%.3gms", v*1000)
	case unit == "s":
		return fmt.Sprintf("%.3gs", v)
	case unit == "ops":
		return fmt.Sprintf("%.3g/s", v)
	}
	return fmt.Sprintf("%.3g", v)
}
