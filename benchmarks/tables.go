package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var number = regexp.MustCompile(`[−-]?\d+(\.\d+)?`)

// resultsFile has the tables of the last full run.
const resultsFile = "RESULTS.md"

// redraw draws the pictures of docs from the tables of resultsFile, and measures nothing.
func redraw(all []work, docs string) error {
	text, err := os.ReadFile(resultsFile)
	if err != nil {
		return err
	}
	var rep report
	for _, w := range all {
		_, section, found := strings.Cut(string(text), "### "+w.name+" ")
		if !found {
			continue
		}
		section, _, _ = strings.Cut(section, "\n### ")
		rep.Results = append(rep.Results, readTable(w, section)...)
	}
	return rep.draw(all, filepath.Join(docs, "img"))
}

// readTable reads the results from the table that report.section wrote.
func readTable(w work, section string) (rows []result) {
	var figures []string
	setting := ""
	for line := range strings.Lines(strings.ReplaceAll(section, `\|`, "¦")) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		switch {
		case !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|-"):
			continue
		case figures == nil: // the heading
			for _, cell := range cells[2:] {
				figure := ""
				for _, c := range w.columns {
					if strings.ReplaceAll(c.title, `\|`, "¦") == strings.TrimSpace(cell) {
						figure = c.figure
					}
				}
				figures = append(figures, figure)
			}
			continue
		}
		if name := strings.TrimSpace(cells[0]); name != "" {
			setting = name
		}
		name := strings.TrimSpace(cells[1])
		if !slices.ContainsFunc(w.clients, func(c client) bool { return c.name == name }) {
			continue // a client that is no longer measured
		}
		r := result{Work: w.name, Setting: setting, Client: name, Figures: map[string]float64{}}
		for i, cell := range cells[2:] {
			if text := number.FindString(cell); text != "" && figures[i] != "" {
				r.Figures[figures[i]], _ = strconv.ParseFloat(strings.Replace(text, "−", "-", 1), 64)
			}
		}
		rows = append(rows, r)
	}
	return rows
}
