package main

import (
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonWriter writes JSON without characters that could control a terminal. It writes a character that is not printable
// as \u and four digits. The JSON keeps its meaning, since such a character can only be in a string.
type jsonWriter struct {
	w    io.Writer
	part []byte // the beginning of a character, if the last write ended inside one
}

func (j *jsonWriter) Write(p []byte) (int, error) {
	in := append(j.part, p...)
	out := make([]byte, 0, len(in))
	for len(in) > 0 && utf8.FullRune(in) {
		r, n := utf8.DecodeRune(in)
		switch {
		case r == '\n' || unicode.IsPrint(r) || r == utf8.RuneError && n == 1:
			out = append(out, in[:n]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		in = in[n:]
	}
	j.part = append([]byte(nil), in...)
	if _, err := j.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// writeJSON writes the result of a command as JSON.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(&jsonWriter{w: w})
	e.SetIndent("", "  ")
	return e.Encode(v)
}
