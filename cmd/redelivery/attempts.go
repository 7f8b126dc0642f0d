package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pulsar-redelivery/redelivery/attempts"
	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

const attemptsUsage = `Usage: redelivery attempts [flags] topic

Shows the log of attempts of a subscription: which messages failed, why, until
when they wait, and which consumers are alive.

  redelivery attempts -subscription billing orders
  redelivery attempts -subscription billing -forget 12:3:0 orders

  -subscription name                the subscription
  -log name                         the log's topic, if not the default
  -forget 12:3:0                    forget the message of this id: ledger, entry
                                    and index in its batch; 12:3 for all of the
                                    batch. Its count starts again, and its delay
                                    ends, when another consumer gets it; one
                                    that has it now goes on as before
  -n 20                             how many messages; 0 for all
  -timeout 30s                      limit for reading the log
Connection: as in redelivery dlq -h
Output:
  -json                             as JSON, for programs
  -v                                the client's log, on stderr
`

// attemptsFlags are the flags of redelivery attempts.
type attemptsFlags struct {
	connection
	subscription, log, forget, topic string
	n                                int
	timeout                          time.Duration
	asJSON, talkative                bool
}

func attemptsCommand(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var f attemptsFlags
	err := f.parse(args)
	if err == nil {
		err = f.run(admin.Once(ctx), stdout, stderr)
	}
	if err != nil && ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	return ending{"attempts", attemptsUsage, "flags", stdout, stderr}.exit(err)
}

// parse reads the command line. Flags may be before the topic and after it.
func (f *attemptsFlags) parse(args []string) error {
	set := flag.NewFlagSet("redelivery attempts", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	f.flags(set)
	set.StringVar(&f.subscription, "subscription", "", "")
	set.StringVar(&f.log, "log", "", "")
	set.StringVar(&f.forget, "forget", "", "")
	f.n, f.timeout = 20, 30*time.Second
	set.Func("n", "", countInto(&f.n, 0, math.MaxInt))
	set.Func("timeout", "", durationInto(&f.timeout))
	set.BoolVar(&f.asJSON, "json", false, "")
	set.BoolVar(&f.talkative, "v", false, "")
	topics, err := parseAll(set, args)
	switch {
	case err != nil:
		return err
	case len(topics) == 0:
		return errUsage{errors.New("no topic is given")}
	case len(topics) > 1:
		return errUsage{fmt.Errorf("there are %d topics, want one", len(topics))}
	case f.subscription == "" && f.log == "":
		return errUsage{errors.New("-subscription is missing")}
	case f.timeout <= 0:
		return errUsage{fmt.Errorf("-timeout is %v, want more than 0", f.timeout)}
	}
	if err := topicName("topic", topics[0]); err != nil {
		return errUsage{err}
	}
	if err := persistent("-log", f.log); f.log != "" && err != nil {
		return errUsage{err}
	}
	f.topic = topicname.Full(topics[0])
	if f.log = cmp.Or(f.log, attempts.Topic(f.topic, f.subscription)); f.forget != "" {
		if _, _, _, err := attempts.ParseID(f.forget); err != nil {
			return errUsage{fmt.Errorf("-forget is %q, want an id such as 12:3 or 12:3:0", f.forget)}
		}
	}
	return nil
}

func (f *attemptsFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	if err := f.complete(); err != nil {
		return err
	}
	if err := f.choose(ctx); err != nil {
		return err
	}
	logger := slog.New(slog.DiscardHandler)
	if f.talkative {
		logger = slog.New(slog.NewTextHandler(stderr, nil))
	}
	client, api, err := f.connect(logger)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := f.reach(ctx); err != nil {
		return err
	}
	// A client that asks for its partitions, and a reader, would create it.
	var metadata struct{ Partitions int }
	topic := f.log
	err = api.Call(ctx, http.MethodGet, admin.Topic(topic)+"/partitions?checkAllowAutoCreation=false", nil, &metadata)
	if metadata.Partitions > 0 {
		topic += "-partition-0"
	} else if !admin.NotFound(err) {
		err = api.Call(ctx, http.MethodGet, admin.Topic(topic)+"/stats", nil, nil)
	}
	var refused *admin.Error
	switch {
	case err != nil && !errors.As(err, &refused): // it does not answer, so that the log may not be there
		return err
	case admin.NotFound(err):
		return fmt.Errorf("there is no log %s, want a consumer with WithAttemptLog, or -log for another topic", f.log)
	}
	log, err := attempts.Open(client, attempts.Options{Topic: topic, Logger: logger, ReadOnly: f.forget == "", Name: "redelivery attempts"})
	if err != nil {
		return f.locate(err)
	}
	defer log.Close()
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	if err := log.Ready(ctx); err != nil {
		return f.locate(err)
	}
	if f.forget != "" {
		return f.forgets(ctx, log, stdout)
	}
	return f.show(log, stdout)
}

// forgets forgets all records of an id: those of several partitions or topics may have it.
func (f *attemptsFlags) forgets(ctx context.Context, log *attempts.Log, stdout io.Writer) error {
	ledger, entry, index, _ := attempts.ParseID(f.forget)
	n := 0
	for _, r := range log.Records() {
		if r.Ledger == ledger && r.Entry == entry && (r.Index == index || strings.Count(f.forget, ":") == 1) {
			if err := log.Forget(ctx, r.Key); err != nil {
				return err
			}
			n++
		}
	}
	if n == 0 {
		return fmt.Errorf("the log has no message %s", f.forget)
	}
	fmt.Fprintf(stdout, "Forgot %d of the log's messages.\n", n)
	return nil
}

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
		shown.Sessions = append(shown.Sessions, sessionShown{s.ID.String(), s.Name, string(s.State), s.Since, s.Heard})
	}
	for _, r := range log.Records() {
		m := messageShown{r.Topic, fmt.Sprintf("%d:%d:%d", r.Ledger, r.Entry, r.Index), r.Count, r.Crashes, r.Written, r.Due, r.Cause, ""}
		if r.Begun != 0 {
			m.Handled = cmp.Or(names[r.Begun], r.Begun.String())
		}
		shown.Messages = append(shown.Messages, m)
	}
	slices.SortFunc(shown.Messages, func(a, b messageShown) int { return a.Due.Compare(b.Due) })
	slices.SortFunc(shown.Sessions, func(a, b sessionShown) int { return a.Since.Compare(b.Since) })
	if f.asJSON {
		return writeJSON(stdout, shown)
	}
	f.print(shown, stdout)
	return nil
}

func (f *attemptsFlags) print(shown attemptsShown, stdout io.Writer) {
	fmt.Fprintf(stdout, "%d messages in %s\n", len(shown.Messages), shown.Log)
	rows := [][]string{{"MESSAGE", "TOPIC", "DELIVERIES", "CRASHES", "FAILED", "DUE", "IN A HANDLER OF", "CAUSE"}}
	for i, m := range shown.Messages {
		if i == f.n && f.n > 0 {
			rows = append(rows, []string{fmt.Sprintf("and %d more", len(shown.Messages)-i)})
			break
		}
		rows = append(rows, []string{m.ID, clean(strings.TrimPrefix(m.Topic, topicname.Persistent)), fmt.Sprint(m.Count), fmt.Sprint(m.Crashes), fromNow(m.Since), fromNow(m.Due),
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
