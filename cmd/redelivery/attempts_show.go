package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/pulsar-redelivery/redelivery/attempts"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/internal/waiting"
)

// attemptsShown is the output of -json.
type attemptsShown struct {
	Log      string            `json:"log"`
	Messages []waiting.Message `json:"messages"`
	Sessions []waiting.Session `json:"sessions"`
}

func (f *attemptsFlags) show(log *attempts.Log, stdout io.Writer) error {
	messages, sessions := waiting.List(log)
	shown := attemptsShown{f.log, messages, sessions}
	if f.asJSON {
		return writeJSON(stdout, shown)
	}
	f.print(shown, stdout)
	return nil
}

func (f *attemptsFlags) print(shown attemptsShown, stdout io.Writer) {
	begun := 0
	if !f.all {
		all := len(shown.Messages)
		shown.Messages = slices.DeleteFunc(shown.Messages, waiting.Message.OnlyBegun)
		begun = all - len(shown.Messages)
	}
	fmt.Fprintf(stdout, "%d messages in %s\n", len(shown.Messages), shown.Log)
	if begun > 0 {
		fmt.Fprintf(stdout, "and %d that a handler had, but that never failed: -all shows these\n", begun)
	}
	rows := [][]string{{"MESSAGE", "TOPIC", "DELIVERIES", "CRASHES", "FAILED", "DUE", "IN A HANDLER OF", "CAUSE"}}
	for i, m := range shown.Messages {
		if i == f.n && f.n > 0 {
			rows = append(rows, []string{fmt.Sprintf("and %d more", len(shown.Messages)-i)})
			break
		}
		rows = append(rows, []string{m.ID, clean(strings.TrimPrefix(m.Topic, topicname.Persistent)),
			fmt.Sprint(m.Count), fmt.Sprint(m.Crashes), fromNow(m.Since), fromNow(m.Due),
			orDash(clean(m.Handled)), orDash(clean(m.Cause))})
	}
	sessions := [][]string{{"SESSION", "NAME", "STATE", "SINCE", "HEARD"}}
	for _, s := range shown.Sessions {
		sessions = append(sessions, []string{s.ID, orDash(clean(s.Name)), s.State, fromNow(s.Since), fromNow(s.Heard)})
	}
	for _, rows := range [][][]string{rows, sessions} {
		if len(rows) > 1 {
			fmt.Fprintln(stdout)
			writeTable(stdout, rows)
		}
	}
}

// fromNow formats a time as its distance from now.
func fromNow(t time.Time) string {
	d := time.Until(t)
	switch {
	case d > 0:
		return "in " + max(d.Round(time.Second), time.Second).String()
	default:
		return d.Round(time.Second).Abs().String() + " ago"
	}
}
