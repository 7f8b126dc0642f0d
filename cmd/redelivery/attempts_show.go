package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/pulsar-redelivery/redelivery/attempts"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// attemptsShown is the output for machines.
type attemptsShown struct {
	Log      string         `json:"log"`
	Messages []messageShown `json:"messages"`
	Sessions []sessionShown `json:"sessions"`
}

type messageShown struct {
	Topic   string    `json:"topic"`
	ID      string    `json:"id"`
	Count   uint32    `json:"deliveries"`
	Crashes uint32    `json:"crashes,omitempty"`
	Since   time.Time `json:"written"`
	Due     time.Time `json:"due"`
	Cause   string    `json:"cause,omitempty"`
	Handled string    `json:"begunBy,omitempty"`
}

// onlyBegun reports whether a message neither failed nor crashed its consumer: it is, or was, in a handler.
func (m messageShown) onlyBegun() bool {
	snoozed := m.Due.After(m.Since.Add(time.Millisecond))
	return m.Count == 0 && m.Crashes == 0 && !snoozed
}

type sessionShown struct {
	ID    string    `json:"id"`
	Name  string    `json:"name"`
	State string    `json:"state"`
	Since time.Time `json:"since"`
	Heard time.Time `json:"heard"`
}

func (f *attemptsFlags) show(log *attempts.Log, stdout io.Writer) error {
	shown := attemptsShown{Log: f.log, Messages: []messageShown{}, Sessions: []sessionShown{}}
	names := map[attempts.SessionID]string{}
	for _, s := range log.Sessions() {
		names[s.ID] = cmp.Or(s.Name, s.ID.String())
		shown.Sessions = append(shown.Sessions, sessionShown{s.ID.String(), s.Name, stateOf(s), s.Since, s.Heard})
	}
	records := log.Records()
	type entry struct {
		topic         string
		ledger, entry int64
	}
	batches := map[entry]bool{}
	for _, r := range records {
		if r.Index > 0 {
			batches[entry{r.Topic, r.Ledger, r.Entry}] = true
		}
	}
	for _, r := range records {
		id := fmt.Sprintf("%d:%d:%d", r.Ledger, r.Entry, partitionOf(r.Topic))
		if batches[entry{r.Topic, r.Ledger, r.Entry}] {
			id += fmt.Sprintf(":%d", r.Index)
		}
		m := messageShown{r.Topic, id, r.Count, r.Crashes, r.Written, r.Due, r.Cause, ""}
		if r.Begun != 0 {
			m.Handled = cmp.Or(names[r.Begun], r.Begun.String())
		}
		shown.Messages = append(shown.Messages, m)
	}
	slices.SortFunc(shown.Messages, func(a, b messageShown) int {
		return cmp.Or(cmp.Compare(b.Crashes, a.Crashes), cmp.Compare(b.Count, a.Count), a.Due.Compare(b.Due))
	})
	slices.SortFunc(shown.Sessions, func(a, b sessionShown) int { return a.Since.Compare(b.Since) })
	if f.asJSON {
		return writeJSON(stdout, shown)
	}
	f.print(shown, stdout)
	return nil
}

// stateOf returns the state of a session. A session without worker.WithCrashLimit has no lease, so the log cannot show
// whether its process was killed: such a session is open until its consumer is closed.
func stateOf(s attempts.Session) string {
	if s.State == attempts.Live && s.Lease == 0 {
		return "open"
	}
	return string(s.State)
}

func (f *attemptsFlags) print(shown attemptsShown, stdout io.Writer) {
	begun := 0
	if !f.all {
		all := len(shown.Messages)
		shown.Messages = slices.DeleteFunc(shown.Messages, messageShown.onlyBegun)
		begun = all - len(shown.Messages)
	}
	fmt.Fprintf(stdout, "%d messages in %s\n", len(shown.Messages), shown.Log)
	if begun > 0 {
		fmt.Fprintf(stdout, "and %d that only were in a handler (-all)\n", begun)
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

// fromNow says how far a moment is.
func fromNow(t time.Time) string {
	d := time.Until(t)
	switch {
	case d > 0:
		return "in " + max(d.Round(time.Second), time.Second).String()
	default:
		return d.Round(time.Second).Abs().String() + " ago"
	}
}
