package history

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Source is a file of a history.
type Source struct {
	Name string // for errors and excerpts
	io.Reader
}

// Line is an event with its place in a file.
type Line struct {
	File   string
	Number int // from 1
	Event
}

// Place returns FILE:NUMBER.
func (l *Line) Place() string { return fmt.Sprintf("%s:%d", l.File, l.Number) }

// Reader merges files by the time of their lines. Lines of the same time come in the order of the files.
type Reader struct{ files []*file }

// file reads the lines of a source, one line ahead.
type file struct {
	name   string
	lines  *bufio.Reader
	number int
	at     int64 // of the previous line
	next   *Line // nil at the end
}

// maxLine is how many bytes a line may have.
const maxLine = 1 << 20

// NewReader reads the first line of each source.
func NewReader(sources ...Source) (*Reader, error) {
	r := &Reader{}
	for _, s := range sources {
		f := &file{name: s.Name, lines: bufio.NewReaderSize(s, maxLine)}
		if err := f.advance(); err != nil {
			return nil, err
		}
		r.files = append(r.files, f)
	}
	return r, nil
}

// Next returns the next line of all files, or io.EOF. Its other errors name the file and the line.
func (r *Reader) Next() (*Line, error) {
	var first *file
	for _, f := range r.files {
		if f.next != nil && (first == nil || f.next.At < first.next.At) {
			first = f
		}
	}
	if first == nil {
		return nil, io.EOF
	}
	line := first.next
	return line, first.advance()
}

// advance parses the next line that is not empty. It drops a last line without its end, which a killed process leaves.
func (f *file) advance() error {
	f.next = nil
	for {
		text, err := f.lines.ReadSlice('\n')
		f.number++
		if errors.Is(err, bufio.ErrBufferFull) {
			return f.withPlace(fmt.Errorf("line has more than %d bytes, which is the limit", maxLine))
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		unfinished := err != nil
		if text = bytes.TrimSpace(text); len(text) > 0 {
			e, err := Parse(text)
			if unfinished && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
				return nil
			}
			if err == nil && e.At < f.at {
				err = fmt.Errorf(`"at" is %d, less than %d in the line before`, e.At, f.at)
			}
			if err != nil {
				return f.withPlace(err)
			}
			f.at, f.next = e.At, &Line{f.name, f.number, e}
			return nil
		}
		if unfinished {
			return nil //nolint:nilerr // err is io.EOF
		}
	}
}

func (f *file) withPlace(err error) error { return fmt.Errorf("%s:%d: %w", f.name, f.number, err) }

// read calls visit with every line of the sources, in the order of the lines' times.
func read(visit func(*Line), sources ...Source) error {
	r, err := NewReader(sources...)
	for err == nil {
		var l *Line
		if l, err = r.Next(); err == nil {
			visit(l)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
