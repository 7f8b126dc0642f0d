package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/pulsar-redelivery/redelivery/attempts"
	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/internal/waiting"
)

const attemptsUsage = `Usage: redelivery attempts [flags] topic

Shows the log of attempts of a subscription: which messages failed, why, until
when they wait, and which consumers are alive. Messages that crashed a consumer
come first, then those that were delivered most often.

  redelivery attempts -subscription billing orders
  redelivery attempts -subscription billing -forget 12:3:0 orders
  redelivery attempts -subscription billing -forget-all orders

  -subscription name                the subscription
  -log name                         the log's topic, if not the default
  -forget 12:3:0                    forget the message with this id: ledger,
                                    entry, partition; in a batch also the index.
                                    Without the index, forget the whole batch.
                                    The next consumer that gets a forgotten
                                    message counts from 0 and does not wait for
                                    the old delay; a consumer that has the
                                    message now goes on as before
  -forget-all                       forget all messages; run this right before
                                    you reset the subscription's cursor
  -all                              also messages that a handler had, but that
                                    never failed
  -n 20                             how many messages; 0 for no limit
  -timeout 30s                      limit for reading the log
States of consumers: live, ended (closed), lost (silent for too long), open
(alive or lost: unknown, since only consumers with worker.WithCrashLimit write
that they are alive).
Connection: as in redelivery dlq -h
Output:
  -json                             as JSON, for programs
  -v                                the client's log, on stderr
`

// attemptsFlags has the values of the flags of redelivery attempts.
type attemptsFlags struct {
	connection
	subscription, log, forget, topic string
	n                                int
	timeout                          time.Duration
	forgetAll, all                   bool
	asJSON                           bool
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
	set.BoolVar(&f.forgetAll, "forget-all", false, "")
	set.BoolVar(&f.all, "all", false, "")
	f.n, f.timeout = 20, 30*time.Second
	set.Func("n", "", countInto(&f.n, 0, math.MaxInt))
	set.Func("timeout", "", durationInto(&f.timeout))
	set.BoolVar(&f.asJSON, "json", false, "")
	topics, err := parseAll(set, args)
	switch {
	case err != nil:
		return err
	case len(topics) == 0:
		return errUsage{errors.New("no topic is given")}
	case len(topics) > 1:
		return errUsage{fmt.Errorf("there are %d topics, want one", len(topics))}
	case f.subscription == "" && f.log == "":
		return errUsage{errors.New("-subscription is missing, want the name of the subscription")}
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
	f.log = topicname.In(f.topic, cmp.Or(f.log, attempts.Topic(f.topic, f.subscription)))
	switch {
	case f.forget != "" && f.forgetAll:
		return errUsage{errors.New("-forget and -forget-all are both given, want one of them")}
	case f.forget != "" && !messageID.MatchString(f.forget):
		return errUsage{fmt.Errorf("-forget is %q, want an id such as 12:3:0 or 12:3:0:7", f.forget)}
	}
	return nil
}

// messageID matches ledger, entry, partition and index. Clients write the partition -1 for a topic without partitions.
var messageID = regexp.MustCompile(`^(\d+:\d+)(:(-1|\d+)(:\d+)?)?$`)

func (f *attemptsFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	client, api, err := f.open(ctx, stderr)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := f.reach(ctx); err != nil {
		return err
	}
	topic, err := waiting.Find(ctx, api, f.log)
	var refused *admin.Error
	switch {
	case err != nil && !errors.As(err, &refused): // the API does not answer: it is unknown whether the log exists
		return err
	case admin.NotFound(err):
		return fmt.Errorf("there is no log %s, want a consumer with WithAttemptLog, or -log for another topic", f.log)
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	o := attempts.Options{Topic: topic, Logger: f.logger(stderr), ReadOnly: true, Name: "redelivery attempts"}
	log, err := waiting.Open(ctx, client, o)
	if err != nil {
		return f.withAddress(err)
	}
	defer log.Close()
	if f.forget == "" && !f.forgetAll {
		return f.show(log, stdout)
	}
	keys := f.toForget(log)
	if f.forget != "" && len(keys) == 0 {
		return fmt.Errorf("the log has no message %s", f.forget)
	}
	o.ReadOnly = false
	writer, err := waiting.Open(ctx, client, o)
	if err != nil {
		return f.withAddress(err)
	}
	defer writer.Close()
	return f.forgetKeys(ctx, writer, keys, stdout)
}

// toForget returns the messages to forget. Several messages, of different partitions or topics, may have the ID of
// -forget.
func (f *attemptsFlags) toForget(log *attempts.Log) (keys []attempts.Key) {
	prefix := strings.Replace(f.forget, ":-1", ":0", 1) + ":"
	for _, r := range log.Records() {
		id := fmt.Sprintf("%d:%d:%d:%d:", r.Ledger, r.Entry, waiting.PartitionOf(r.Topic), r.Index)
		if f.forgetAll || strings.HasPrefix(id, prefix) {
			keys = append(keys, r.Key)
		}
	}
	return keys
}

func (f *attemptsFlags) forgetKeys(ctx context.Context, log *attempts.Log, keys []attempts.Key,
	stdout io.Writer) error {
	if f.forgetAll {
		if err := log.ForgetAll(ctx); err != nil {
			return err
		}
		fmt.Fprintf(stdout, "Forgot all of the log's messages: %d.\n", len(keys))
		return nil
	}
	for _, key := range keys {
		if err := log.Forget(ctx, key); err != nil {
			return err
		}
	}
	fmt.Fprintf(stdout, "Forgot %d of the log's messages.\n", len(keys))
	return nil
}
