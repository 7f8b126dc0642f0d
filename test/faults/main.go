// Command faults breaks connections, brokers and consumers while messages are handled. Each trial is a fault with a
// workload. It writes a history, which internal/history checks; docs/history.md describes the history and the checks.
// The figures in docs/reliability.md, attempts.md and performance.md come from this command.
//
//	go run ./test/faults                    every fault of the set chaos on each subscription type it is made for
//	go run ./test/faults kill               processes that die, with a log of attempts
//	go run ./test/faults -during 10m owners partitions and keys that change their owners
//	go run ./test/faults -short             the quick faults
//	go run ./test/faults -fault unloads     one fault; -list has the names of all
//	go run ./test/faults -for 1h            faults and variants of the work chosen at random, for an hour
//
// It starts, kills and restarts a broker with test/scripts/pulsar; PULSAR_NAME names the broker. With -on env it uses
// the broker at PULSAR_URL and PULSAR_ADMIN_URL, and with -on pulsartest a broker in this process. With these two it
// omits some faults.
//
// The column stuck counts messages that the broker did not send to a waiting consumer, but sent to the consumer that
// replaced it. With plain consumers this happens more often. The column elsewhere counts early deliveries to a consumer
// that had not nacked the message. Without a log of attempts such a consumer cannot know the delay; it gets the message
// because the broker sends whole batches. The exit status is 1 if a trial fails or has findings other than stuck
// messages.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/history"
)

// settings has the values of the flags.
type settings struct {
	fault, kind, with, on, dir string
	messages                   int
	short                      bool
	soak, during               time.Duration
	seed                       uint64
	sets                       []string
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var s settings
	flag.StringVar(&s.fault, "fault", "", "only the fault of this `name`; -list shows all")
	flag.StringVar(&s.kind, "type", "", "only this subscription `type`: Shared, Key_Shared, Failover or Exclusive")
	flag.StringVar(&s.on, "on", "own", "`broker`: own, env or pulsartest")
	flag.IntVar(&s.messages, "messages", 0, "`number` of messages of each trial, in place of the fault's own number")
	flag.StringVar(&s.with, "with", "",
		"only with these `variants`, as in chan,wrap,partitions,cumulative, as far as they fit")
	flag.BoolVar(&s.short, "short", false, "only the faults that take a few seconds")
	flag.DurationVar(&s.soak, "for", 0, "choose faults at random for this `duration`")
	flag.DurationVar(&s.during, "during", 30*time.Second, "how `long` owners change in each trial")
	flag.Uint64Var(&s.seed, "seed", 0, "seed of random choices: of variants, and with -for also of faults")
	flag.StringVar(&s.dir, "history", "",
		"write the history of each trial to a folder in this `folder`; redelivery check reads it")
	list := flag.Bool("list", false, "list the faults")
	worker := flag.String("worker", "", "run as a consumer that may be killed; `JSON` describes its work")
	flag.Parse()
	s.sets = flag.Args()

	if *worker != "" {
		return child(ctx, *worker)
	}
	faults := slices.Concat(chaosFaults, logFaults, killFaults, ownerFaults)
	if *list {
		for _, f := range faults {
			fmt.Printf("%-7s %-23s %s\n", f.set, f.name, f.what)
		}
		return nil
	}
	next, err := s.choose(faults)
	if err != nil {
		return err
	}
	return s.try(ctx, next)
}

// choose returns a function that returns one trial after the other, and nil after the last one.
func (s *settings) choose(faults []fault) (next func(i int) *trial, err error) {
	var chosen []*trial
	for i := range faults {
		f := &faults[i]
		switch {
		case s.fault != "" && f.name != s.fault, s.short && !f.short, !has(s.on, f.needs):
			continue
		case s.fault == "" && !slices.Contains(s.sets, string(f.set)) && (len(s.sets) > 0 || f.set != chaos):
			continue
		}
		for _, t := range f.types {
			if s.kind != "" && typeNames[t] != s.kind || s.short && t != f.types[0] {
				continue
			}
			chosen = append(chosen, s.trials(f, t)...)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no fault %q for type %q in the sets %v on broker %s; -list shows all", s.fault, s.kind,
			s.sets, s.on)
	}
	drawn := s.seed != 0 || s.soak > 0
	if s.seed == 0 {
		s.seed = uint64(time.Now().UnixNano())
	}
	fmt.Fprintf(os.Stderr, "-seed %d\n", s.seed)
	random, end := rand.New(rand.NewPCG(s.seed, 0)), time.Now().Add(s.soak)
	return func(i int) *trial {
		switch {
		case s.soak > 0 && time.Now().Before(end):
			i = random.IntN(len(chosen))
		case s.soak > 0 || i >= len(chosen):
			return nil
		}
		t := *chosen[i]
		t.random = random
		for _, v := range variants {
			if drawn && s.with == "" && v.name != plain && random.IntN(2) == 0 {
				t.add(v.name)
			}
		}
		return &t
	}, nil
}

// trials returns the trials of a fault on a subscription type, each with a set of variants.
func (s *settings) trials(f *fault, kind pulsar.SubscriptionType) (all []*trial) {
	w := f.work
	w.Type = kind
	if s.messages > 0 && w.Messages > 0 {
		w.Messages = s.messages
	}
	sets := append([][]string{nil}, f.also...)
	if s.with != "" {
		sets = [][]string{strings.Split(s.with, ",")}
	} else if s.short || s.soak > 0 {
		sets = sets[:1]
	}
	for _, names := range sets {
		t := &trial{fault: f, work: w, during: s.during}
		for _, name := range names {
			t.add(name)
		}
		if len(t.with) == len(names) || s.with != "" && len(t.with) > 0 {
			all = append(all, t)
		}
	}
	return all
}

const header = `| fault | subscription | sent | processed | deliveries | most | forgotten | duplicates | stuck | lost | early | elsewhere | counts | disorder | longest stall | took |
|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|`

// try runs the trials that next returns, and prints a row for each. Without -history it keeps only histories with
// findings.
func (s *settings) try(ctx context.Context, next func(i int) *trial) error {
	dir := s.dir
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "faults"); err != nil {
			return err
		}
		defer func() { _ = os.Remove(dir) }() // succeeds if it is empty
	}
	broker, stop, err := openBroker(ctx, s.on)
	if err != nil {
		return err
	}
	defer stop()
	fmt.Println(header)
	var failed []string
	for i := 0; ctx.Err() == nil; i++ {
		t := next(i)
		if t == nil {
			break
		}
		t.work.Dir = filepath.Join(dir,
			fmt.Sprintf("%d-%s-%s", i, strings.NewReplacer(" ", "-", ",", "").Replace(t.name()),
				typeNames[t.work.Type]))
		if err := os.MkdirAll(t.work.Dir, 0o700); err != nil {
			return err
		}
		begin := time.Now()
		r, err := t.run(ctx, broker)
		if ctx.Err() != nil {
			break
		}
		fmt.Printf("| %-22s | %-10s | %6d | %6d | %6d | %2d | %3d | %5d | %3d | %d | %d | %2d | %d | %d | %6.1f s | "+
			"%3.0f s |\n", t.name(), typeNames[t.work.Type],
			t.work.Messages, r.Settled, r.Deliveries, r.most, r.Forgotten, r.Doubles, r.found[history.Stuck],
			r.found[history.Lost], r.found[history.Early], r.elsewhere,
			r.found[history.Miscounted], r.found[history.Disorder], r.Longest.Seconds(), time.Since(begin).Seconds())
		if t.work.MaxDeliveries > 0 {
			t.notes = append(t.notes, fmt.Sprintf("%d dead letters", r.Letters))
		}
		if len(t.notes) > 0 {
			fmt.Fprintln(os.Stderr, strings.Join(t.notes, ", "))
		}
		switch bad := slices.DeleteFunc(r.findings, func(f history.Finding) bool { return f.Fault == history.Stuck }); {
		case err == nil && len(bad) > 0:
			err = fmt.Errorf("%v, such as message %s, which %s; see %s", r.found, bad[0].Message, bad[0].Text,
				t.work.Dir)
		case err == nil && s.dir == "":
			if err := os.RemoveAll(t.work.Dir); err != nil {
				return err
			}
		}
		if err != nil {
			failed = append(failed, fmt.Sprintf("%s on %s: %v", t.name(), typeNames[t.work.Type], err))
			fmt.Fprintln(os.Stderr, failed[len(failed)-1])
		}
	}
	if len(failed) > 0 {
		return errors.New("trials failed, or have findings other than stuck messages:\n" +
			strings.Join(failed, "\n"))
	}
	return ctx.Err()
}

// child runs a consumer in this process, which a trial has started. It repeats Subscribe until that succeeds, because
// another consumer may still have the subscription.
func child(ctx context.Context, text string) error {
	var w work
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		return err
	}
	client, err := newClient(w)
	if err != nil {
		return err
	}
	defer client.Close()
	var c *consumer
	for {
		if c, err = startConsumer(client, w); err == nil || ctx.Err() != nil {
			break
		}
		sleep(ctx, 50*time.Millisecond)
	}
	if err != nil {
		return nil // the trial ended this process before it had subscribed
	}
	<-ctx.Done()
	c.close()
	return nil
}

var typeNames = map[pulsar.SubscriptionType]string{
	pulsar.Shared: "Shared", pulsar.KeyShared: "Key_Shared", pulsar.Failover: "Failover", pulsar.Exclusive: "Exclusive",
}
