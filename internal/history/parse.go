package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// The largest times and counts that a history may have. JSON numbers are exact up to maxTime in all languages.
const (
	maxTime  = 1<<53 - 1
	maxCount = 1<<31 - 1
)

// Parse parses one line. Its error names the field, its value and the allowed values.
func Parse(text []byte) (Event, error) {
	fields, err := fieldsOf(text)
	if err != nil {
		return Event{}, err
	}
	p := parser{fields: fields}
	e := Event{At: p.number("at", required, maxTime, microseconds), Kind: p.kind()}
	if p.err != nil {
		return Event{}, p.err
	}
	has := shapes[e.Kind]
	e.Consumer = p.text("consumer", has.consumer)
	e.Message = p.text("message", has.message)
	e.Key = p.text("key", has.key)
	e.Delay = p.number("delay", has.delay, maxTime, microseconds)
	e.Count = p.count("count", has.count)
	e.Retry = p.count("retry", has.retry)
	e.Copy = p.text("copy", has.copied)
	e.Confirmed = p.boolean("confirmed", has.confirmed)
	e.Note = p.text("note", optional)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		p.refuse("%s has a field %s, want %s", e.Kind, quote(name), has)
	}
	if p.err != nil {
		return Event{}, p.err
	}
	return e, nil
}

// fieldsOf returns the fields of a JSON object. Unlike json.Unmarshal it distinguishes upper and lower case, and
// refuses a field that is given twice.
func fieldsOf(text []byte) (map[string]json.RawMessage, error) {
	bad := func(err error) error {
		return fmt.Errorf("line is %s, want one JSON object: %w", quote(string(text)), err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, bad(errorOr(err, "it does not begin with {"))
	}
	fields := map[string]json.RawMessage{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, bad(err)
		}
		name, _ := t.(string)
		if _, twice := fields[name]; twice {
			return nil, fmt.Errorf("field %s is given twice, want it once", quote(name))
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, bad(err)
		}
		fields[name] = value
	}
	if _, err := d.Token(); err != nil {
		return nil, bad(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, bad(errors.New("text follows the object"))
	}
	return fields, nil
}

// errorOr returns err or, if that is nil, an error with the given text.
func errorOr(err error, text string) error {
	if err != nil {
		return err
	}
	return errors.New(text)
}

// parser takes the fields out of a line one by one, and keeps the first error.
type parser struct {
	fields map[string]json.RawMessage
	err    error
}

func (p *parser) refuse(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

// take decodes a field into value, and reports whether it did. A field that this kind of event must not have stays in
// fields, and Parse reports it.
func (p *parser) take(name string, need presence, value any, want string) (taken bool) {
	raw, given := p.fields[name]
	switch {
	case !given && need == required:
		p.refuse("%s is missing, want %s", name, want)
		return false
	case !given || need == absent:
		return false
	}
	delete(p.fields, name)
	if string(raw) == "null" || json.Unmarshal(raw, value) != nil {
		p.refuse("%s is %s, want %s", name, clip(string(raw)), want)
		return false
	}
	return true
}

// number takes a whole number; unit is for errors.
func (p *parser) number(name string, need presence, highest int64, unit string) (n int64) {
	want := fmt.Sprintf("a whole number%s from 0 to %d", unit, highest)
	if p.take(name, need, &n, want) && (n < 0 || n > highest) {
		p.refuse("%s is %d, want %s", name, n, want)
	}
	return n
}

const microseconds = " of microseconds"

// count takes a count, which is -1 if the field is not given.
func (p *parser) count(name string, need presence) int {
	if _, given := p.fields[name]; !given || need == absent {
		return -1
	}
	return int(p.number(name, need, maxCount, ""))
}

func (p *parser) text(name string, need presence) (s string) {
	const want = "a string that is not empty"
	if p.take(name, need, &s, want) && s == "" {
		p.refuse(`%s is "", want %s`, name, want)
	}
	return s
}

func (p *parser) boolean(name string, need presence) (b bool) {
	p.take(name, need, &b, "true or false")
	return b
}

func (p *parser) kind() Kind {
	var name string
	if p.take("event", required, &name, "a string") {
		if _, known := shapes[Kind(name)]; !known {
			p.refuse("event is %s, want %s", quote(name), oneOf(kinds))
		}
	}
	return Kind(name)
}

func oneOf(kinds []Kind) string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = string(k)
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// String lists the fields that an event may have.
func (s shape) String() string {
	names := []string{"only at", "event"}
	for _, field := range []struct {
		name string
		has  presence
	}{{"consumer", s.consumer}, {"message", s.message}, {"key", s.key}, {"delay", s.delay}, {"count", s.count},
		{"retry", s.retry}, {"copy", s.copied}, {"confirmed", s.confirmed}} {
		if field.has != absent {
			names = append(names, field.name)
		}
	}
	return strings.Join(names, ", ") + " and note"
}

// maxQuoted is how many bytes of a value an error shows.
const maxQuoted = 80

func quote(s string) string { return fmt.Sprintf("%q", clip(s)) }

func clip(s string) string {
	if len(s) > maxQuoted {
		return strings.ToValidUTF8(s[:maxQuoted], "") + "…"
	}
	return s
}
