package ui

import (
	"cmp"
	"fmt"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/pulsar-redelivery/redelivery/internal/dlqcommand"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// functions are the functions for templates.
var functions = template.FuncMap{
	"show": show, "short": short, "ago": ago, "until": until, "clock": clock, "count": count, "letters": letters,
	"link": link, "bytes": size,
	"rate": rate, "lastOf": func(all []step) int { return len(all) - 1 }, "list": func(all ...any) []any { return all },
}

// show returns an untrusted text in one line of at most 500 characters. Characters that are not printable, or that
// change the direction of reading, become dots.
func show(text string) string { return cut(dlqcommand.Clean(text), 500) }

// cut returns at most n characters.
func cut(text string, n int) string {
	for i := range text {
		if n--; n < 0 {
			return text[:i] + "…"
		}
	}
	return text
}

// showLines is like show, but keeps all lines and tabs, and does not cut the text.
func showLines(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == '\n' || r == '\t' {
			return r
		}
		return '·'
	}, text)
}

// short returns a topic's name without persistent:// and public/default.
func short(topic string) string {
	return show(strings.TrimPrefix(strings.TrimPrefix(topic, topicname.Persistent), "public/default/"))
}

// span formats a duration in one unit, for people.
func span(d time.Duration) string {
	switch d = d.Abs(); {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

func ago(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return span(time.Since(t)) + " ago"
}

func until(t time.Time) string {
	if d := time.Until(t); d > 0 {
		return "in " + span(d+time.Second-1)
	}
	return span(time.Since(t)) + " ago"
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.Local().Format("2006-01-02 15:04:05 MST")
}

// count formats a number with commas: 1,234,567.
func count(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func letters(n int) string { return plural(n, "letter") }

func plural(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return count(n) + " " + of + "s"
}

func size(n int) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 1_000_000:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}

func rate(perSecond float64) string {
	switch {
	case perSecond < 0.005:
		return "0"
	case perSecond < 10:
		return fmt.Sprintf("%.2g", perSecond)
	}
	return count(int(perSecond + 0.5))
}

// link returns the address of a page with parameters: pairs has the name and the value of each.
func link(page string, pairs ...string) string {
	query := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		query.Set(pairs[i], pairs[i+1])
	}
	return page + "?" + query.Encode()
}

// errorText returns the text of an error for a page.
func errorText(err error) string {
	text := err.Error()
	for _, of := range []string{"attempts: ", "deadletter: "} {
		text = strings.TrimPrefix(text, of)
	}
	return cut(showLines(text), 2000)
}

// cause returns an error's type and reason in one text, for a page.
func cause(kind, reason string) string {
	if kind == "" || reason == "" {
		return cmp.Or(show(kind+reason), "no reason given")
	}
	return show(kind + ": " + reason)
}
