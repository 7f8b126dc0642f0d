// Command chaos breaks connections, brokers and consumers while messages are at work, and counts what became of every
// message: how many were processed, came twice, were lost or came early. It is what docs/reliability.md was filled in
// with.
//
// It works on the broker of test/scripts/pulsar, which it starts, kills and starts again; PULSAR_NAME chooses which.
//
//	go run ./test/chaos                   every fault on each subscription type it is made for
//	go run ./test/chaos -short            the quick ones
//	go run ./test/chaos -fault unloads    one; -list has their names
//	go run ./test/chaos -for 1h           faults and variants of the work chosen at random, for an hour
//
// "stuck" are messages that the broker did not send although a consumer wanted them, and that came when another consumer took its
// place: plain consumers meet that as often. "disorder" counts, where messages are acknowledged cumulatively, those first delivered
// before the one published before them. Each trial writes a history, which docs/history.md describes. The exit status is 1 if it has another
// finding than a stuck message.
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

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	fault := flag.String("fault", "", "only this `name`; -list shows them")
	kind := flag.String("type", "", "only this subscription `type`: Shared, Key_Shared, Failover or Exclusive")
	messages := flag.Int("messages", 0, "`number` of messages in place of each fault's own")
	with := flag.String("with", "", "only with these `variants`, as in chan,wrap,partitions,cumulative, as far as they fit")
	short := flag.Bool("short", false, "only the faults that take a few seconds")
	soak := flag.Duration("for", 0, "choose faults at random for so `long`")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the choice of -for")
	list := flag.Bool("list", false, "list the faults")
	dir := flag.String("history", "", "write the history of each trial to a folder in this `folder`; redelivery check reads it")
	worker := flag.String("worker", "", "be a consumer that may be killed: `JSON` of its work")
	flag.Parse()

	if *worker != "" {
		return child(ctx, *worker)
	}
	var chosen []*trial
	for i := range faults {
		f := &faults[i]
		if *list {
			fmt.Printf("%-22s %s\n", f.name, f.what)
			continue
		}
		if *fault != "" && f.name != *fault || *short && !f.short {
			continue
		}
		for _, t := range f.types {
			if *kind != "" && typeNames[t] != *kind {
				continue
			}
			if *short && t != f.types[0] {
				continue
			}
			w := f.work
			w.Type = t
			if *messages > 0 {
				w.Messages = *messages
			}
			sets := append([][]string{nil}, f.also...)
			if *with != "" {
				sets = [][]string{strings.Split(*with, ",")}
			} else if *short || *soak > 0 {
				sets = sets[:1]
			}
			for _, names := range sets {
				t := &trial{fault: f, work: w}
				for _, name := range names {
					t.add(name)
				}
				if len(t.with) == len(names) || *with != "" && len(t.with) > 0 {
					chosen = append(chosen, t)
				}
			}
		}
	}
	switch {
	case *list:
		return nil
	case len(chosen) == 0:
		return fmt.Errorf("no fault %q for type %q; -list shows what there is", *fault, *kind)
	case *soak == 0:
		return try(ctx, *dir, func(i int) *trial {
			if i < len(chosen) {
				return chosen[i]
			}
			return nil
		})
	}
	fmt.Fprintf(os.Stderr, "-seed %d\n", *seed)
	random, end := rand.New(rand.NewPCG(*seed, 0)), time.Now().Add(*soak)
	return try(ctx, *dir, func(int) *trial {
		if time.Now().After(end) {
			return nil
		}
		t := *chosen[random.IntN(len(chosen))]
		for _, v := range variants {
			if random.IntN(2) == 0 {
				t.add(v.name)
			}
		}
		return &t
	})
}

// try makes trials until next has no more, and prints a row for each. Without a folder it keeps only the histories that have a finding.
func try(ctx context.Context, dir string, next func(i int) *trial) error {
	keep := dir != ""
	if !keep {
		var err error
		if dir, err = os.MkdirTemp("", "chaos"); err != nil {
			return err
		}
		defer func() { _ = os.Remove(dir) }() // if it is empty
	}
	broker, err := startBroker(ctx, nil, "start", "-keep")
	if err != nil {
		return err
	}
	fmt.Println("| fault | subscription | sent | processed | duplicates | stuck | lost | early | disorder | longest stall | took |")
	fmt.Println("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
	var failed []string
	for i := 0; ctx.Err() == nil; i++ {
		t := next(i)
		if t == nil {
			break
		}
		t.work.Dir = filepath.Join(dir, fmt.Sprintf("%d-%s-%s", i, strings.NewReplacer(" ", "-", ",", "").Replace(t.name()), typeNames[t.work.Type]))
		if err := os.MkdirAll(t.work.Dir, 0o700); err != nil {
			return err
		}
		begin := time.Now()
		r, err := t.run(ctx, broker)
		if ctx.Err() != nil {
			break
		}
		fmt.Printf("| %-22s | %-10s | %6d | %6d | %5d | %3d | %d | %d | %d | %6.1f s | %3.0f s |\n", t.name(), typeNames[t.work.Type],
			t.work.Messages, r.Settled, r.Doubles, r.found[history.Stuck], r.found[history.Lost], r.found[history.Early], r.found[history.Disorder],
			r.Longest.Seconds(), time.Since(begin).Seconds())
		switch bad := slices.DeleteFunc(r.findings, func(f history.Finding) bool { return f.Fault == history.Stuck }); {
		case err == nil && len(bad) > 0:
			err = fmt.Errorf("%v, such as message %s, which %s; see %s", r.found, bad[0].Message, bad[0].Text, t.work.Dir)
		case err == nil && !keep:
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
		return errors.New("nothing may be lost, early, out of order, miscounted, or doubled without a fault:\n" + strings.Join(failed, "\n"))
	}
	return ctx.Err()
}

// child is a consumer in a process of its own.
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
	c, err := startConsumer(client, w)
	if err != nil {
		return err
	}
	<-ctx.Done()
	c.close()
	return nil
}

var typeNames = map[pulsar.SubscriptionType]string{
	pulsar.Shared: "Shared", pulsar.KeyShared: "Key_Shared", pulsar.Failover: "Failover", pulsar.Exclusive: "Exclusive",
}
