// Command owners counts what Workers handle again, or out of order, while partitions and keys change their owners: two or more Workers of a
// subscription, of which some leave and others join, and topics that are unloaded. It does so with key order and, beside it, without.
//
// It works on the broker that PULSAR_URL and PULSAR_ADMIN_URL name.
//
//	go run ./test/owners              half a minute on each subscription type, on a topic without partitions and on one with four
//	go run ./test/owners -for 10m     what docs/performance.md has
//	go run ./test/owners -trace FILE  with the story of each message that was repeated or went back
//
// "repeated" counts successes of messages that had succeeded, each under one cause:
//   - begun: a handler was called with a message that was known to be lost, which key order does not do;
//   - at work: the connection or partition was lost while a handler was at work;
//   - on the way: it was lost within a second after that. pulsar-client-go sends acknowledgements every 100 ms, and -at-once each by itself;
//   - older: the acknowledgement was sent before that, and the broker sent the message again.
//
// A message that the producer published twice, when its topic was unloaded, counts as two. "back" counts first successes after one of a later
// message of the same key; "sent so" are those of them of which the Worker that handled the later message had not received the earlier one,
// nor dropped it. Without key order messages go back since failed ones come later.
//
// The exit status is 1 if a message was lost, or if with key order a repeated success was begun, or a message went back that was not sent so.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

func main() {
	during := flag.Duration("for", 30*time.Second, "for how long messages are published and owners change")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the choice of what happens")
	atOnce := flag.Bool("at-once", false, "send each acknowledgement at once: else an unload loses those of the last 10 ms, which are sent together")
	traced := flag.String("trace", "", "a file to write what happened to each message that was repeated or, with key order, went back to")
	flag.Parse()
	var grouping *pulsar.AckGroupingOptions
	if *atOnce {
		grouping = &pulsar.AckGroupingOptions{MaxSize: 1}
	}
	if err := run(*during, *seed, grouping, *traced); err != nil {
		fmt.Fprintln(os.Stderr, "owners:", err)
		os.Exit(1)
	}
}

func run(during time.Duration, seed uint64, grouping *pulsar.AckGroupingOptions, traced string) error {
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: os.Getenv("PULSAR_URL"), Logger: silent, MaxConnectionsPerBroker: 4})
	if err != nil {
		return err
	}
	defer client.Close()
	fmt.Fprintf(os.Stderr, "-seed %d\n", seed)
	var trials []*trial
	for _, kind := range []pulsar.SubscriptionType{pulsar.Failover, pulsar.KeyShared} {
		for _, partitions := range []int{0, 4} {
			for _, ordered := range []bool{false, true} {
				trials = append(trials, &trial{client: client, admin: os.Getenv("PULSAR_ADMIN_URL"), kind: kind, partitions: partitions,
					ordered: ordered, traced: traced != "" && ordered, random: rand.New(rand.NewPCG(seed, 0)), grouping: grouping})
			}
		}
	}
	var all sync.WaitGroup
	for _, t := range trials { // side by side, with the same events at the same times
		all.Go(func() { t.err = t.run(during) })
	}
	all.Wait()
	if traced != "" {
		if err := writeStories(traced, trials); err != nil {
			return err
		}
	}
	fmt.Println("| subscription | partitions | key order | joins | leaves | unloads | messages | lost | repeated | begun | at work | on the way | older | back | sent so | dropped |")
	fmt.Println("|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
	for _, t := range trials {
		f := t.journal.figures()
		fmt.Printf("| %s | %d | %t | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d |\n", names[t.kind], t.partitions, t.ordered, t.joins,
			t.leaves, t.unloads, t.sent, t.sent-f.succeeded, f.repeated, f.by[begun], f.by[atWork], f.by[onTheWay], f.by[older], f.back, f.sent, t.dropped)
		switch {
		case t.err != nil:
			err = t.err
		case f.succeeded < t.sent:
			err = fmt.Errorf("%d messages were lost", t.sent-f.succeeded)
		case t.ordered && f.by[begun] > 0:
			err = fmt.Errorf("with key order %d repeated successes were begun although their messages were known to be lost", f.by[begun])
		case t.ordered && f.back > f.sent:
			err = fmt.Errorf("%d messages went back although their Worker had received them in order", f.back-f.sent)
		}
	}
	return err
}

// writeStories writes what happened to messages that were repeated or went back.
func writeStories(path string, trials []*trial) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, t := range trials {
		if t.traced {
			fmt.Fprintf(f, "\n# %s, %d partitions\n", names[t.kind], t.partitions)
			t.journal.story(f)
		}
	}
	return f.Close()
}

var names = map[pulsar.SubscriptionType]string{pulsar.Failover: "Failover", pulsar.KeyShared: "Key_Shared"}

// until waits until a condition holds.
func until(ctx context.Context, holds func() bool) error {
	for !holds() {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
