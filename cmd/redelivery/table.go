package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/term"
	textwidth "golang.org/x/text/width"

	"github.com/pulsar-redelivery/redelivery/internal/dlqcommand"
)

// width is the assumed width of a terminal whose width is not known.
const width = 80

// screen returns the width of the terminal w. If w is no terminal, it returns the value of COLUMNS or, by default,
// width.
func screen(w io.Writer) int {
	if file, ok := fileOf(w); ok {
		if n, _, err := term.GetSize(int(file.Fd())); err == nil && n > 0 {
			return n
		}
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	return width
}

// terminal reports whether w is a terminal.
func terminal(w io.Writer) bool {
	file, ok := fileOf(w)
	return ok && term.IsTerminal(int(file.Fd()))
}

func fileOf(w io.Writer) (*os.File, bool) {
	if o, ok := w.(*output); ok {
		w = o.w
	}
	file, ok := w.(*os.File)
	return file, ok
}

// writeTable writes rows. Columns are as wide as their contents, except the last one, which gets the rest of the
// screen. A column whose head begins with > is aligned to the right. A row of one cell is a line without columns.
func writeTable(w io.Writer, rows [][]string) {
	widths, right := make([]int, len(rows[0])), make([]bool, len(rows[0]))
	for i, head := range rows[0] {
		rows[0][i], right[i] = strings.CutPrefix(head, ">")
	}
	for _, row := range rows {
		for i, cell := range row {
			if len(row) > 1 {
				widths[i] = max(widths[i], columns(cell))
			}
		}
	}
	room := screen(w)
	for _, n := range widths[:len(widths)-1] {
		room -= n + 2
	}
	for _, row := range rows {
		if last := len(widths) - 1; len(row) > last {
			row[last] = fit(row[last], max(room, 20))
		}
		var line strings.Builder
		for i, cell := range row {
			space := strings.Repeat(" ", max(widths[i]-columns(cell), 0))
			if i == len(widths)-1 && !right[i] {
				line.WriteString(cell)
			} else if right[i] && len(row) > 1 {
				line.WriteString(space + cell + "  ")
			} else {
				line.WriteString(cell + space + "  ")
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

// columns returns how many columns s takes on a terminal.
func columns(s string) int {
	n := 0
	for _, r := range s {
		n += column(r)
	}
	return n
}

func column(r rune) int {
	switch textwidth.LookupRune(r).Kind() {
	case textwidth.EastAsianWide, textwidth.EastAsianFullwidth:
		return 2
	default:
		if unicode.In(r, unicode.Mn, unicode.Me) { // a mark above or below the previous character
			return 0
		}
		return 1
	}
}

// clean returns s without characters that could control a terminal.
func clean(s string) string { return dlqcommand.Clean(s) }

func fit(s string, width int) string {
	if columns(s) <= width && len(s) <= 8*width {
		return s
	}
	n := 0
	for i, r := range s {
		n += column(r)
		if n >= width || i >= 8*width { // marks have bytes, but no width
			return s[:i] + "…"
		}
	}
	return s
}
