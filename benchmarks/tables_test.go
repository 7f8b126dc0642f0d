package main

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// All lines and texts must also stay inside the picture, and no line may cross the names.
func TestPicturesInDocsShowTheTablesOfResults(t *testing.T) {
	const docs = "../docs"
	folder := t.TempDir()
	all := works(func(full, _ int) int { return full })
	if err := redraw(all, folder); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(folder, "img", "*.svg"))
	if len(files) < 2 {
		t.Fatalf("redraw drew only %q", files)
	}
	for _, file := range files {
		drawn, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		kept, err := os.ReadFile(filepath.Join(docs, "img", filepath.Base(file)))
		if err != nil || string(kept) != string(drawn) {
			t.Errorf("docs/img/%s does not show the tables, want `go run . -redraw -docs ../docs`", filepath.Base(file))
		}
		checkGeometry(t, filepath.Base(file), string(drawn))
	}
}

func checkGeometry(t *testing.T, name, svg string) {
	t.Helper()
	var p struct {
		Height float64 `xml:"height,attr"`
		Lines  []struct {
			X1 float64 `xml:"x1,attr"`
			X2 float64 `xml:"x2,attr"`
			Y2 float64 `xml:"y2,attr"`
		} `xml:"line"`
		Texts []struct {
			X      string `xml:"x,attr"`
			Y      string `xml:"y,attr"`
			Anchor string `xml:"text-anchor,attr"`
			Text   string `xml:",chardata"`
		} `xml:"text"`
	}
	if err := xml.NewDecoder(strings.NewReader(svg)).Decode(&p); err != nil {
		t.Fatal(name, err)
	}
	for _, l := range p.Lines {
		if min(l.X1, l.X2) < labelWidth || max(l.X1, l.X2) > pictureWidth-rightMargin+2 || l.Y2 > p.Height {
			t.Errorf("%s: a line leaves the plot: %+v", name, l)
		}
	}
	for _, text := range p.Texts {
		x, _ := strconv.ParseFloat(text.X, 64)
		y, _ := strconv.ParseFloat(text.Y, 64)
		width := 7.2 * float64(len([]rune(text.Text))) // more than the real width at 13 px
		left := map[string]float64{"start": x, "middle": x - width/2, "end": x - width}[text.Anchor]
		if left < 0 || left+width > pictureWidth+8 || y > p.Height {
			t.Errorf("%s: %q leaves the picture: from %.0f to %.0f", name, text.Text, left, left+width)
		}
	}
}
