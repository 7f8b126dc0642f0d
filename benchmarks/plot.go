package main

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// pictures are drawn of these works.
var pictures = map[string]func(work, []result) (*plot.Plot, vg.Length, error){
	"W1": latenessPlot, "W2": latenessPlot, "W4": barPlot("cpuUs", "CPU per message, µs"),
	"W3": barPlot("bytes", "heap per waiting message, bytes"), "W5": barPlot("waitingPercent", "percent of one core, 100 waiting"),
}

var colors = map[string]color.Color{
	"redelivery": color.RGBA{0x1f, 0x77, 0xb4, 255}, "go": color.RGBA{0x2c, 0xa0, 0x2c, 255},
	"java": color.RGBA{0xe6, 0x7e, 0x22, 255}, "python": color.RGBA{0x8e, 0x5c, 0xb5, 255},
}

const (
	width  = 20 * vg.Centimeter
	perRow = 0.6 * vg.Centimeter
)

func pictureFile(w work) string { return strings.ToLower(w.name) + ".svg" }

func (rep *report) draw(done []work, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, w := range done {
		rows := slices.DeleteFunc(slices.Clone(rep.Results), func(r result) bool { return r.Work != w.name || len(r.Figures) == 0 })
		if pictures[w.name] == nil || len(rows) == 0 {
			continue
		}
		p, height, err := pictures[w.name](w, rows)
		if err != nil {
			return err
		}
		if err := p.Save(width, height, filepath.Join(folder, pictureFile(w))); err != nil {
			return err
		}
	}
	return nil
}

// rowsPlot is a plot with a labelled row for each result, from top to bottom, and a gap between settings.
func rowsPlot(w work, rows []result) (p *plot.Plot, at []float64, height vg.Length) {
	p = plot.New()
	p.Title.Text = w.title
	var ticks plot.ConstantTicks
	y := 0.0
	for i, r := range rows {
		if i > 0 && r.Setting != rows[i-1].Setting {
			y -= 0.6
		}
		label := r.Client
		if r.Setting != "" {
			label = r.Setting + ": " + label
		}
		at = append(at, y)
		ticks = append(ticks, plot.Tick{Value: y, Label: "   " + label}) // room, lest the picture's edge cuts it
		y--
	}
	p.Y.Tick.Marker = ticks
	p.Y.Tick.Length = 0
	p.Y.LineStyle.Width = 0
	p.Y.Min, p.Y.Max = y+0.4, 0.6
	return p, at, vg.Length(-y)*perRow + 2*vg.Centimeter
}

// latenessPlot has the lateness of each client: a thin line from the 1st to the 99th percentile, a thick one over the
// middle half and a dot at the median.
func latenessPlot(w work, rows []result) (*plot.Plot, vg.Length, error) {
	p, at, height := rowsPlot(w, rows)
	p.X.Label.Text = "ms late; left of 0 is early"
	var ticks plot.ConstantTicks
	for _, v := range []float64{-1000, -300, -100, -30, -10, -3, 0, 3, 10, 30, 100, 300, 1000, 3000} {
		ticks = append(ticks, plot.Tick{Value: signedLog(v), Label: strings.Replace(fmt.Sprint(v), "-", "−", 1)})
	}
	p.X.Tick.Marker = ticks
	grid := plotter.NewGrid()
	grid.Horizontal.Width = 0
	grid.Vertical.Color = color.Gray{0xdd}
	p.Add(grid)
	for i, r := range rows {
		span := func(from, to float64, width vg.Length) error {
			line, err := plotter.NewLine(plotter.XYs{{X: signedLog(quantile(r.Samples, from)), Y: at[i]},
				{X: signedLog(quantile(r.Samples, to)), Y: at[i]}})
			if err != nil {
				return err
			}
			line.Color, line.Width = colors[r.Task.Program], width
			p.Add(line)
			return nil
		}
		if err := span(0.01, 0.99, vg.Points(1.5)); err != nil {
			return nil, 0, err
		}
		if err := span(0.25, 0.75, vg.Points(7)); err != nil {
			return nil, 0, err
		}
		dot, err := plotter.NewScatter(plotter.XYs{{X: signedLog(quantile(r.Samples, 0.5)), Y: at[i]}})
		if err != nil {
			return nil, 0, err
		}
		dot.GlyphStyle = draw.GlyphStyle{Color: color.White, Radius: vg.Points(2), Shape: draw.CircleGlyph{}}
		p.Add(dot)
	}
	zero, err := plotter.NewLine(plotter.XYs{{X: 0, Y: p.Y.Min}, {X: 0, Y: p.Y.Max}})
	if err != nil {
		return nil, 0, err
	}
	p.Add(zero)
	p.X.Min, p.X.Max = min(p.X.Min, signedLog(-10)), max(p.X.Max, signedLog(30))
	return p, height, nil
}

// signedLog is near linear around 0 and logarithmic from some ms on, on both sides.
func signedLog(ms float64) float64 { return math.Copysign(math.Log10(1+math.Abs(ms)), ms) }

// barPlot has a bar for a figure of each client, with its value.
func barPlot(figure, axis string) func(work, []result) (*plot.Plot, vg.Length, error) {
	return func(w work, rows []result) (*plot.Plot, vg.Length, error) {
		p, at, height := rowsPlot(w, rows)
		p.X.Label.Text = axis
		labels := plotter.XYLabels{}
		longest := 0.0
		for i, r := range rows {
			value := r.Figures[figure]
			line, err := plotter.NewLine(plotter.XYs{{X: 0, Y: at[i]}, {X: value, Y: at[i]}})
			if err != nil {
				return nil, 0, err
			}
			line.Color, line.Width = colors[r.Task.Program], vg.Points(10)
			p.Add(line)
			longest = max(longest, value)
			labels.XYs = append(labels.XYs, plotter.XY{X: value, Y: at[i]})
			labels.Labels = append(labels.Labels, fmt.Sprintf("  %.3g", value))
		}
		text, err := plotter.NewLabels(labels)
		if err != nil {
			return nil, 0, err
		}
		for i := range text.TextStyle {
			text.TextStyle[i].YAlign = draw.YCenter
		}
		p.Add(text)
		p.X.Min, p.X.Max = 0, longest*1.1
		return p, height, nil
	}
}
