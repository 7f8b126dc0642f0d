package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// pictures lists the works that have a picture. If figure is empty, the picture shows lateness.
var pictures = map[string]struct{ figure, axis, unit string }{
	"W1": {}, "W2": {},
	"W3": {"bytes", "heap per waiting message, bytes", ""}, "W4": {"cpuUs", "CPU per message, µs", ""},
	"W5": {"waitingPercent", "percent of one core, with 100 messages waiting", ""},
}

// A theme is the colors of a picture, for a light or a dark page.
type theme struct{ name, text, faint, early, ours, other string }

var themes = []theme{
	{"light", "#1f2328", "#d1d9e0", "#cf222e", "#0969da", "#818b98"},
	{"dark", "#f0f6fc", "#3d444d", "#f85149", "#4493f8", "#9198a1"},
}

const (
	pictureWidth = 760.0
	labelWidth   = 220.0
	rightMargin  = 90.0
	rowHeight    = 24.0
	plotWidth    = pictureWidth - labelWidth - rightMargin
)

func pictureFile(name string, t theme) string { return strings.ToLower(name) + "-" + t.name + ".svg" }

// pictureTag returns HTML that shows the light picture, or the dark one if the reader's browser prefers dark.
func pictureTag(name, title string) string {
	return fmt.Sprintf("<picture>\n  <source media=\"(prefers-color-scheme: dark)\" srcset=\"img/%s\">\n  <img "+
		"alt=\"%s\" src=\"img/%s\">\n</picture>\n",
		pictureFile(name, themes[1]), title, pictureFile(name, themes[0]))
}

// draw writes the pictures of works, and the picture of the README. The README's picture has one row for each client.
func (rep *report) draw(done []work, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, t := range themes {
		for _, w := range done {
			rows := rep.measured(w.name)
			if _, ok := pictures[w.name]; !ok || len(rows) == 0 {
				continue
			}
			if err := write(folder, w.name, t, picture(w, rows, t)); err != nil {
				return err
			}
		}
		var rows []result
		inReadme := []client{ours, plain, plain0Bits, java, java0Bits}
		for _, c := range inReadme {
			for _, r := range rep.measured("W1") {
				if r.Setting == "mixed" && r.Client == c.name {
					r.Setting = ""
					rows = append(rows, r)
				}
			}
		}
		if len(rows) == len(inReadme) {
			p := latenessPicture("When nacked messages come back", rows, t)
			if err := write(folder, "precision", t, p); err != nil {
				return err
			}
		}
	}
	return nil
}

func write(folder, name string, t theme, svg string) error {
	return os.WriteFile(filepath.Join(folder, pictureFile(name, t)), []byte(svg), 0o644)
}

// measured returns the results of a work, without those that have no figures.
func (rep *report) measured(name string) []result {
	return slices.DeleteFunc(slices.Clone(rep.Results),
		func(r result) bool { return r.Work != name || len(r.Figures) == 0 })
}

func picture(w work, rows []result, t theme) string {
	if p := pictures[w.name]; p.figure != "" {
		return barPicture(w.title, p.axis, p.figure, rows, t)
	}
	return latenessPicture(w.title, rows, t)
}

// canvas is a picture with a row for each result, and a heading above the rows of each setting.
type canvas struct {
	strings.Builder
	theme
	at     []float64 // the middle of each row
	top    float64   // of the rows
	bottom float64
}

func newCanvas(title string, rows []result, t theme) *canvas {
	c := &canvas{theme: t, top: 40}
	y, setting := c.top, ""
	headings := map[int]float64{}
	for i, r := range rows {
		if r.Setting != setting {
			setting = r.Setting
			y += rowHeight
			headings[i] = y - rowHeight/2
		}
		c.at = append(c.at, y+rowHeight/2)
		y += rowHeight
	}
	c.bottom = y
	fmt.Fprintf(c, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %[1]g "+
		"%[2]g\" "+
		"font-family=\"-apple-system,'Segoe UI',Helvetica,Arial,sans-serif\" font-size=\"13\" fill=\"%s\">\n",
		pictureWidth, y+50, t.text)
	c.text(0, 20, "start", `font-size="15" font-weight="600"`, title)
	for i, r := range rows {
		if y, ok := headings[i]; ok {
			c.text(0, y+4, "start", `font-weight="600"`, r.Setting)
		}
		weight := ""
		if r.ours() {
			weight = `font-weight="600"`
		}
		c.text(labelWidth-12, c.at[i]+4, "end", weight, r.Client)
	}
	return c
}

func (r result) ours() bool { return strings.HasPrefix(r.Client, ours.name) }

func (c *canvas) text(x, y float64, anchor, style, s string) {
	s = strings.NewReplacer("&", "&amp;", "<", "&lt;").Replace(s)
	fmt.Fprintf(c, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" %s>%s</text>\n", x, y, anchor, style, s)
}

func (c *canvas) line(x1, y1, x2, y2, width float64, color string) {
	fmt.Fprintf(c, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"%g\"/>\n", x1,
		y1, x2, y2, color, width)
}

func (c *canvas) end(axis string) string {
	c.text(labelWidth+plotWidth/2, c.bottom+42, "middle", "", axis)
	c.WriteString("</svg>\n")
	return c.String()
}

func (c *canvas) color(r result) string {
	if r.ours() {
		return c.ours
	}
	return c.other
}

// latenessPicture draws a line for each client. The line ends at the 99th percentile. It begins at the client's
// earliest message if that message was early, else at the median. A dot marks the median. The part left of 0 is red.
func latenessPicture(title string, rows []result, t theme) string {
	low, high := -10.0, 30.0
	for _, r := range rows {
		low, high = min(low, -r.Figures["earlyMs"]), max(high, r.Figures["p99"])
	}
	from, to := signedLog(low), signedLog(high)
	x := func(ms float64) float64 { return labelWidth + (signedLog(ms)-from)/(to-from)*plotWidth }
	c := newCanvas(title, rows, t)
	for _, tick := range []float64{-1000, -300, -100, -30, -10, -3, 0, 3, 10, 30, 100, 300, 1000, 3000} {
		if tick < low || tick > high {
			continue
		}
		width := 1.0
		if tick == 0 {
			width = 2
		}
		c.line(x(tick), c.top, x(tick), c.bottom, width, c.faint)
		c.text(x(tick), c.bottom+20, "middle", "", strings.Replace(fmt.Sprint(tick), "-", "−", 1))
	}
	for i, r := range rows {
		y, first, median, last := c.at[i], -r.Figures["earlyMs"], r.Figures["p50"], r.Figures["p99"]
		if first < 0 {
			c.line(x(first), y, x(min(0, max(last, first))), y, 6, c.early)
		}
		if begin := max(0, min(median, last)); last > 0 {
			if first < 0 {
				begin = 0
			}
			c.line(x(begin), y, max(x(last), x(begin)+2), y, 6, c.color(r))
		}
		color := c.color(r)
		if median < 0 {
			color = c.early
		}
		fmt.Fprintf(c, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"6\" fill=\"%s\"/>\n", x(median), y, color)
		note := fmt.Sprintf("%.0f ms", last)
		if first < 0 {
			note = fmt.Sprintf("%.0f %% early", r.Figures["earlyPercent"])
		}
		style := ""
		if first < 0 {
			style = fmt.Sprintf("fill=%q", c.early)
		}
		c.text(pictureWidth, y+4, "end", style, note)
	}
	return c.end("ms late, red is early · dot: median, end: 99th percentile")
}

// signedLog is the scale of the axis: nearly linear around 0, and logarithmic farther away on both sides.
func signedLog(ms float64) float64 { return math.Copysign(math.Log10(1+math.Abs(ms)), ms) }

// barPicture draws one figure of each client as a bar with its value.
func barPicture(title, axis, figure string, rows []result, t theme) string {
	longest := 0.0
	for _, r := range rows {
		longest = max(longest, r.Figures[figure])
	}
	c := newCanvas(title, rows, t)
	c.line(labelWidth, c.top, labelWidth, c.bottom, 1, c.faint)
	for i, r := range rows {
		value := r.Figures[figure]
		length := 0.0
		if longest > 0 {
			length = value / longest * plotWidth
		}
		c.line(labelWidth, c.at[i], labelWidth+length, c.at[i], 12, c.color(r))
		c.text(labelWidth+length+8, c.at[i]+4, "start", "", fmt.Sprintf("%.3g", value))
	}
	return c.end(axis)
}
