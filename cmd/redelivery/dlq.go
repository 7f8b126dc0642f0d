package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// dlq runs one command line of redelivery dlq.
type dlq struct {
	connection
	dlqFlags
	stdin          io.Reader
	stdout, stderr io.Writer
	client         pulsar.Client
	api            admin.API
	topic          string // the dead letter topic's full name
	adopted        bool   // adopt chose the subscription: it is not the tool's own, and no flag names it
	schemas        *admin.Schemas
	letters        *deadletter.Topic
}

// dlqFlags has the values of the flags of all verbs, without those of the connection.
type dlqFlags struct {
	filter             deadletter.Filter
	subscription, out  string
	n, skip            int
	in                 string
	payload, yes, all  bool
	noExport, anyTopic bool
	asJSON             bool
	replayFlags
}

// replayFlags are the flags of replay: which letters go where, how fast, and when to stop.
type replayFlags struct {
	to, target, routing     string
	namespaces              []string // letters may go back to these, besides the dead letter topic's own
	others, fresh           bool
	canary, max, maxReplays int
	rate                    float64
	canaryTimeout           time.Duration
}

func dlqCommand(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 0 && terminal(stdout) {
		return (&browse{bufio.NewScanner(stdin), stdout, stderr}).run()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second interrupt ends the process
	d := &dlq{stdin: stdin, stdout: stdout, stderr: stderr}
	err := d.run(admin.Once(ctx), args)
	if errors.Is(err, context.Canceled) {
		err = interrupted(args[0], d.fresh, err)
	}
	if err != nil {
		err = d.hint(err)
	}
	return ending{"dlq", dlqUsage, "verbs and flags", stdout, stderr}.exit(err)
}

// hint returns err with the flag that avoids it.
func (d *dlq) hint(err error) error {
	switch {
	case errors.Is(err, deadletter.ErrNotDeadLetters):
		return fmt.Errorf("%w; -any-topic overrides this", err)
	case errors.Is(err, deadletter.ErrNoTopic) && d.target == "" &&
		strings.Contains(err.Error(), pulsar.RetryTopicSuffix):
		return fmt.Errorf("%w; -to origin replays to the topic of origin", err)
	}
	var stopped *deadletter.ImportError
	if errors.As(err, &stopped) {
		return fmt.Errorf("%w; -skip %d continues after these", err, stopped.Lines)
	}
	var earlier *deadletter.UnfinishedError
	if errors.As(err, &earlier) {
		return d.unfinished(earlier)
	}
	return err
}

// interrupted returns an error that says that a verb was interrupted, with the verb's other errors.
func interrupted(verb string, fresh bool, err error) error {
	said := []string{"interrupted"}
	switch {
	case verb == "replay" && fresh: // -new would publish the canary and the messages under way once more
		said = append(said, "the same command without -new goes on from here")
	case verb == "replay" || verb == "purge":
		said = append(said, "the same command goes on from here")
	}
	var stopped *deadletter.ImportError
	if errors.As(err, &stopped) {
		said = append(said,
			fmt.Sprintf("the first %d lines are done; -skip %[1]d continues after these", stopped.Lines))
	}
	for _, other := range butCanceled(err) {
		said = append(said, other.Error())
	}
	return errors.New(strings.Join(said, "; "))
}

// butCanceled returns the errors that err joins, except context.Canceled.
func butCanceled(err error) (all []error) {
	joined, ok := err.(interface{ Unwrap() []error })
	switch {
	case ok:
		for _, err := range joined.Unwrap() {
			all = append(all, butCanceled(err)...)
		}
	case !errors.Is(err, context.Canceled):
		all = append(all, err)
	}
	return all
}

var verbs = map[string]func(*dlq, context.Context) error{
	"groups": (*dlq).groups, "peek": (*dlq).peek, "replay": (*dlq).replay, "export": (*dlq).export,
	"purge":  (*dlq).purge,
	"import": (*dlq).imports, "unsubscribe": (*dlq).unsubscribe,
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
	case verb == "":
		return errUsage{errors.New("no verb is given, want list, groups, peek, replay, export, purge, import or " +
			"unsubscribe")}
	case do == nil && verb != "list":
		return errUsage{fmt.Errorf("verb is %q, want list, groups, peek, replay, export, purge, import or unsubscribe",
			verb)}
	}
	name, err := d.parse(verb, args[1:])
	if err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return errUsage{err}
	}
	d.adminAlone = verb == "list" && !d.all
	d.client, d.api, err = d.open(ctx, d.stderr)
	if err != nil {
		return err
	}
	defer d.client.Close()
	if verb == "list" {
		return d.list(ctx, name)
	}
	if err := d.reach(ctx); err != nil {
		return err
	}
	d.topic = topicname.Full(name)
	_, decryption := d.encryption()
	o := deadletter.Options{Topic: name, Subscription: d.ownSub(), AnyTopic: d.anyTopic, Admin: deadletter.Admin(d.api),
		Decryption: decryption}
	d.letters, err = deadletter.Open(d.client, o)
	if err != nil {
		return err
	}
	if d.subscription == "" && slices.Contains(strings.Fields(chosen), verb) {
		if err := d.adopt(ctx); err != nil {
			return err
		}
		o.Subscription = d.ownSub()
		if d.adopted {
			d.letters, err = deadletter.Open(d.client, o)
			if err != nil {
				return err
			}
		}
	}
	d.schemas = &admin.Schemas{API: d.api, Topic: d.topic}
	return d.withAddress(do(d, ctx))
}

// export writes letters to a new file or to stdout. It removes a file that it could not complete.
func (d *dlq) export(ctx context.Context) error {
	w := d.stdout
	var file *os.File
	if d.out != "" {
		var err error
		file, err = os.OpenFile(d.out, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		w = file
	}
	n, err := d.letters.Export(ctx, &jsonWriter{w: w}, d.filter)
	if err == nil && n == 0 {
		err = d.noMatch()
	}
	if file != nil {
		if err = errors.Join(err, file.Close()); err != nil {
			return errors.Join(err, os.Remove(d.out))
		}
		if d.asJSON {
			return writeJSON(d.stdout, deadletter.Report{Done: n})
		}
	}
	if n > 0 || err == nil {
		fmt.Fprintln(d.stderr, letters("Exported", n))
	}
	return err
}

// purge shows its plan or, with -yes, purges. It appends to the file of an interrupted purge.
func (d *dlq) purge(ctx context.Context) error {
	if !d.yes {
		o := deadletter.PurgeOptions{Filter: d.filter, DryRun: true}
		if d.noExport {
			o.Export = io.Discard
		}
		plan, err := d.letters.Purge(ctx, o)
		if err != nil {
			return err
		}
		if err := d.planned("Would purge", plan); err != nil || d.asJSON {
			return err
		}
		d.printOthers(ctx, "-subscription %s purges these")
		return nil
	}
	o := deadletter.PurgeOptions{Filter: d.filter, Export: io.Discard}
	if d.out != "" {
		out := &lines{name: d.out}
		defer out.close()
		o.Export = out
	}
	p := d.progress(ctx, "purged")
	o.Progress = p.show
	report, err := d.letters.Purge(ctx, o)
	p.end()
	return d.finished(ctx, "Purged", report, err)
}
