package config

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/pulsar-redelivery/redelivery/backoff"
)

// decoder makes a Config of a tree. To find all errors at once, it continues after an error: its methods add the error
// to errs and return the zero value.
type decoder struct {
	factories map[string]Factory
	policies  string // the names of all policies, for errors; "" until they are read
	errs      []error
}

// fail adds the error that a value is wrong.
func (d *decoder) fail(n *node, want string, args ...any) {
	d.errs = append(d.errs, wrong(n.at, n.path(), "is %s, want %s", n, fmt.Sprintf(want, args...)))
}

// missing adds the error that a map lacks a name.
func (d *decoder) missing(n *node, name, want string, args ...any) {
	d.errs = append(d.errs, wrong(n.at, n.path(), "has no %s, want %s", name, fmt.Sprintf(want, args...)))
}

// fields returns the values of a mapping by name, and adds an error for each name that is not among known. If
// known is empty, every name is allowed.
func (d *decoder) fields(n *node, known ...string) map[string]*node {
	switch {
	case n == nil || n.isEmpty():
		return nil
	case n.kind != yaml.MappingNode:
		d.fail(n, "a map")
		return nil
	}
	values := make(map[string]*node, len(n.fields))
	for _, f := range n.fields {
		if len(known) > 0 && !slices.Contains(known, f.name) {
			d.errs = append(d.errs, wrong(f.at, f.value.path(), "is an unknown key%s, want one of %s",
				hint(f.name, known), strings.Join(known, ", ")))
		}
		values[f.name] = f.value
	}
	return values
}

// text reads a string. Numbers count as strings, since a name or a topic may look like a number.
func (d *decoder) text(n *node) string { return d.textLike(n, "a text") }

// textLike is text with the wanted form in its error.
func (d *decoder) textLike(n *node, want string) string {
	if n == nil {
		return ""
	}
	if n.kind != yaml.ScalarNode || n.isEmpty() || n.text == "" {
		d.fail(n, "%s", want)
		return ""
	}
	return n.text
}

// durationForm matches the form of a duration, even if its value is too large.
var durationForm = regexp.MustCompile(`^([0-9]+(\.[0-9]*)?(ms|s|m|h))+$|^0*[1-9][0-9]*d$`)

// duration reads a duration in whole milliseconds. It accepts the forms of time.ParseDuration, and those of a single
// delay level, which may be in days.
func (d *decoder) duration(n *node, least time.Duration) time.Duration {
	if n == nil {
		return 0
	}
	v, err := time.ParseDuration(n.text)
	if level, levelErr := backoff.ParseDelayLevels(n.text); levelErr == nil && len(level) == 1 {
		v, err = level[0], nil
	}
	switch {
	case n.kind == yaml.ScalarNode && err != nil && durationForm.MatchString(n.text):
		d.fail(n, "at most %v", time.Duration(math.MaxInt64).Truncate(time.Millisecond))
	case n.kind != yaml.ScalarNode || err != nil:
		d.fail(n, `a duration with its unit, such as "30s"`)
	case strings.ContainsAny(n.text, "nuµμ") || v%time.Millisecond != 0: // the broker counts milliseconds
		d.fail(n, "whole milliseconds, in ms, s, m or h")
	case v >= least:
		return v
	case least > 1:
		d.fail(n, "at least %v", least)
	case least == 1:
		d.fail(n, "more than 0")
	default:
		d.fail(n, "0 or more")
	}
	return 0
}

// milliseconds reads a duration as a whole number of milliseconds, which is the form of the Java client's parameters.
func (d *decoder) milliseconds(n *node, least time.Duration) time.Duration {
	return time.Duration(d.whole(n, least.Milliseconds(), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

func (d *decoder) whole(n *node, least, most int64) int64 {
	if n == nil {
		return 0
	}
	v, err := strconv.ParseInt(n.text, 10, 64)
	if n.tag != "!!int" || err != nil || v < least || v > most {
		d.fail(n, "a whole number from %d to %d", least, most)
		return 0
	}
	return v
}

var byteUnits = map[string]int64{"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

// bytes reads a number of bytes, such as 4096 or 16MiB.
func (d *decoder) bytes(n *node, least int64) int64 {
	if n == nil {
		return 0
	}
	digits := strings.TrimRight(n.text, "KMGiB")
	unit := byteUnits[n.text[len(digits):]]
	v, err := strconv.ParseInt(digits, 10, 64)
	if n.kind != yaml.ScalarNode || unit == 0 || err != nil || v < least || v > math.MaxInt64/unit {
		d.fail(n, `bytes, %d or more, such as 4096 or "16MiB"; units are KiB, MiB and GiB`, least)
		return 0
	}
	return v * unit
}

func (d *decoder) boolean(n *node) bool {
	if n == nil {
		return false
	}
	v := strings.EqualFold(n.text, "true")
	if n.tag != "!!bool" || !v && !strings.EqualFold(n.text, "false") {
		d.fail(n, "true or false")
	}
	return v
}

// number reads a number that ok accepts. want says in the error which numbers these are.
func (d *decoder) number(n *node, want string, ok func(float64) bool) float64 {
	if n == nil {
		return 0
	}
	v, err := strconv.ParseFloat(n.text, 64)
	if n.tag != "!!int" && n.tag != "!!float" || err != nil || !ok(v) {
		d.fail(n, "a number %s", want)
		return 0
	}
	return v
}
