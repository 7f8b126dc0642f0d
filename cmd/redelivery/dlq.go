package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/deadletter"
)

const dlqUsage = `Usage: redelivery dlq <verb> [flags] [topic]

Looks into dead letter topics, and replays, exports and purges what is in them.

  redelivery dlq list public/default     dead letter and retry topics of a namespace
  redelivery dlq groups orders-sub-DLQ   letters by cause
  redelivery dlq peek orders-sub-DLQ     letters; no cursor is moved
  redelivery dlq replay orders-sub-DLQ   what a replay would do; with -yes, do it
  redelivery dlq export orders-sub-DLQ   letters as lines of JSON
  redelivery dlq purge orders-sub-DLQ    what a purge would do; with -yes, do it

Which letters, for all verbs but list:
  -group a1b2c3d4e5                 of this group; may be repeated
  -property name=value              with this property; may be repeated
  -after 2h, -before 2006-01-02     that died so long ago, or at a time
  -subscription redelivery          the tool's own, which replay and purge
                                    acknowledge on
peek:
  -n 10                             how many; 0 for all
  -payload                          payloads too, decoded by their schema
replay:
  -to retry                         the subscription's retry topic; or origin,
                                    where other subscriptions get them too
  -others                           do not ask about these
  -topic name                       where they go instead
  -canary 10                        replay ten; go on when they are processed
  -max 100, -rate 50                at most so many; a second
  -max-replays 3                    leave letters that were replayed so often
  -new                              give up a replay that is not finished
  -yes                              do it
export, purge:
  -o file                           where to; export writes to stdout without
  -no-export                        purge without
  -yes                              do it
Connection, by default from PULSAR_URL, PULSAR_ADMIN_URL and client.conf, which
PULSAR_CLIENT_CONF names:
  -url pulsar://localhost:6650, -admin-url http://localhost:8080
  -auth-plugin name, -auth-params params
  -tls-trust-cert-path file, -tls-allow-insecure,
  -tls-enable-hostname-verification
  -encryption-private-key file, -encryption-public-key file,
  -encryption-key-name name         of encrypted letters
Output:
  -json                             for machines
  -v                                the client's log, on stderr

An interrupted replay or purge goes on with the same command. Exit codes: 0 for
success; 1 for an error, an interruption or a canary that is dead again; 2 for a
wrong command line.
`

// dlq is one command line.
type dlq struct {
	connection
	filter                                                   deadletter.Filter
	subscription, to, topic, out                             string
	n, canary, max, maxReplays                               int
	rate                                                     float64
	payload, others, fresh, yes, noExport, asJSON, talkative bool

	stdin          io.Reader
	stdout, stderr io.Writer
	client         pulsar.Client
	admin          deadletter.Admin
	letters        *deadletter.Topic
}

// errUsage is an error of the command line.
type errUsage struct{ error }

func dlqCommand(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second interrupt ends the process
	d := &dlq{stdin: stdin, stdout: stdout, stderr: stderr}
	err := d.run(ctx, args)
	var usage errUsage
	switch {
	case err == nil:
		return 0
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, dlqUsage)
		return 0
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "redelivery dlq: %v\n\n%s", err, dlqUsage)
		return 2
	}
	fmt.Fprintf(stderr, "redelivery dlq: %s\n", clean(strings.TrimPrefix(err.Error(), "deadletter: ")))
	return 1
}

var verbs = map[string]func(*dlq, context.Context) error{
	"groups": (*dlq).groups, "peek": (*dlq).peek, "replay": (*dlq).replay, "export": (*dlq).export, "purge": (*dlq).purge,
}

func (d *dlq) run(ctx context.Context, args []string) error {
	verb := ""
	if len(args) > 0 {
		verb = args[0]
	}
	do := verbs[verb]
	switch {
	case verb == "help" || verb == "-h" || verb == "-help" || verb == "--help":
		return flag.ErrHelp
	case do == nil && verb != "list":
		return errUsage{fmt.Errorf("verb is %q, want list, groups, peek, replay, export or purge", verb)}
	}
	name, err := d.parse(args[1:])
	if err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return errUsage{err}
	}
	if name == "" && verb != "list" {
		return errUsage{fmt.Errorf("%s needs a topic", verb)}
	}
	if err := d.complete(); err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	if d.talkative {
		log = slog.New(slog.NewTextHandler(d.stderr, nil))
	}
	if d.client, d.admin, err = d.connect(log); err != nil {
		return err
	}
	defer d.client.Close()
	if verb == "list" {
		return d.list(ctx, name)
	}
	_, decryption := d.encryption()
	d.letters, err = deadletter.Open(d.client, deadletter.Options{Topic: name, Subscription: d.subscription, Admin: d.admin, Decryption: decryption})
	if err != nil {
		return err
	}
	return do(d, ctx)
}

// parse takes flags before and after the topic.
func (d *dlq) parse(args []string) (topic string, err error) {
	set := flag.NewFlagSet("redelivery dlq", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	d.flags(set)
	set.Func("group", "", func(s string) error { d.filter.Groups = append(d.filter.Groups, s); return nil })
	set.Func("property", "", func(s string) error {
		name, value, ok := strings.Cut(s, "=")
		if !ok {
			return errors.New("want name=value")
		}
		if d.filter.Properties == nil {
			d.filter.Properties = map[string]string{}
		}
		d.filter.Properties[name] = value
		return nil
	})
	set.Func("after", "", moment(&d.filter.After))
	set.Func("before", "", moment(&d.filter.Before))
	set.StringVar(&d.subscription, "subscription", "", "")
	set.IntVar(&d.n, "n", 10, "")
	set.BoolVar(&d.payload, "payload", false, "")
	set.StringVar(&d.to, "to", "", "")
	set.BoolVar(&d.others, "others", false, "")
	set.StringVar(&d.topic, "topic", "", "")
	set.IntVar(&d.canary, "canary", 0, "")
	set.IntVar(&d.max, "max", 0, "")
	set.Float64Var(&d.rate, "rate", 0, "")
	set.IntVar(&d.maxReplays, "max-replays", 0, "")
	set.BoolVar(&d.fresh, "new", false, "")
	set.StringVar(&d.out, "o", "", "")
	set.BoolVar(&d.noExport, "no-export", false, "")
	set.BoolVar(&d.yes, "yes", false, "")
	set.BoolVar(&d.asJSON, "json", false, "")
	set.BoolVar(&d.talkative, "v", false, "")
	for {
		if err := set.Parse(args); err != nil {
			return "", err
		}
		if set.NArg() == 0 {
			break
		}
		if topic != "" {
			return "", fmt.Errorf("argument is %q, want only one topic", set.Arg(0))
		}
		topic, args = set.Arg(0), set.Args()[1:]
	}
	switch {
	case d.n < 0:
		return "", fmt.Errorf("-n is %d, want 0 or more", d.n)
	case d.out != "" && d.noExport:
		return "", errors.New("-o and -no-export are both given")
	}
	return topic, nil
}

// moment reads a time, or how long ago it was. Whole minutes, so that the same command soon after means the same.
func moment(t *time.Time) func(string) error {
	return func(s string) (err error) {
		if ago, err := time.ParseDuration(s); err == nil {
			*t = time.Now().Add(-ago).Truncate(time.Minute)
			return nil
		}
		for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime, time.DateOnly} {
			if *t, err = time.ParseInLocation(layout, s, time.Local); err == nil {
				return nil
			}
		}
		return errors.New("want a duration such as 2h, or a time such as 2006-01-02T15:04")
	}
}

func (d *dlq) json(v any) error {
	e := json.NewEncoder(d.stdout)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// export writes to a file that is not there yet, or to stdout.
func (d *dlq) export(ctx context.Context) error {
	w := d.stdout
	if d.out != "" {
		file, err := os.OpenFile(d.out, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer file.Close()
		w = file
	}
	n, err := d.letters.Export(ctx, w, d.filter)
	fmt.Fprintf(d.stderr, "%s\n", letters("Exported", n))
	return err
}

// purge goes on with a file that an interrupted one has begun.
func (d *dlq) purge(ctx context.Context) error {
	if d.out == "" && !d.noExport {
		return errUsage{errors.New("purge needs -o file for what it exports first, or -no-export")}
	}
	if !d.yes {
		n, err := d.letters.Export(ctx, io.Discard, d.filter)
		if err != nil {
			return err
		}
		if d.asJSON {
			return d.json(deadletter.Report{Seen: n})
		}
		fmt.Fprintf(d.stdout, "%s\nNothing was changed; with -yes it is done.\n", letters("Would purge", n))
		return nil
	}
	o := deadletter.PurgeOptions{Filter: d.filter, Export: io.Discard}
	if d.out != "" {
		file, err := os.OpenFile(d.out, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer file.Close()
		o.Export = file
	}
	p := d.progress(ctx)
	o.Progress = p.show
	report, err := d.letters.Purge(ctx, o)
	p.end()
	return d.done("Purged", report, err)
}
