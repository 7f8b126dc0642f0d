// Command upstream runs pulsar-client-go's own tests through redelivery.Subscribe, and prints which of them pass.
//
//	go run ./test/upstream                              on the broker in process, and on the broker at PULSAR_URL
//	go run ./test/upstream -upstream master             with the newest commit of pulsar-client-go
//	go run ./test/upstream -run 'TestDLQ|TestRLQ'       some of them
//	go run ./test/upstream -quick                       each test wrapped, and plain only if it fails wrapped
//
// It copies the module from the module cache to a temporary folder. In the copy, the tests call a variable instead of
// client.Subscribe. An added test file sets the variable to redelivery.Subscribe if an environment variable is set.
// Each test runs in a process of its own, once plain and once wrapped, with its own topics.
//
// The command fails if a test passes plain but not wrapped, unless docs/migration.md explains the exception. The broker
// needs maxMessageSize=1048576: a chunk of 5 MiB does not fit into an entry of the bookie.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"
)

func main() {
	version := flag.String("upstream", "",
		"version, branch or commit of pulsar-client-go, or a folder with its source; empty means the version in go.mod")
	run := flag.String("run", ".", "regular expression of the tests to run")
	quick := flag.Bool("quick", false, "run a test plain only if it fails wrapped")
	parallel := flag.Int("parallel", 2, "tests at a time")
	on := flag.String("on", "", "only this broker: pulsartest or pulsar")
	all := flag.Bool("all", false, "also run tests that do not subscribe: they show how complete pulsartest is")
	list := flag.Bool("list", false, "only list the tests that subscribe, and why some are left out")
	out := flag.String("out", "", "file for the table; standard output if empty")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	only, err := regexp.Compile(*run)
	if err == nil {
		err = compare(ctx, options{version: *version, only: only, quick: *quick, parallel: *parallel, on: *on,
			list: *list, all: *all, out: *out})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "upstream:", err)
		os.Exit(1)
	}
}

type options struct {
	version          string
	only             *regexp.Regexp
	quick, list, all bool
	parallel         int
	on, out          string
}

func compare(ctx context.Context, o options) error {
	began := time.Now()
	src, err := fetch(ctx, o.version)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "upstream-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	tests, err := prepare(src, dir, o.all)
	if err != nil {
		return err
	}
	tests = slices.DeleteFunc(tests, func(t test) bool { return !o.only.MatchString(t.name) })
	slices.SortFunc(tests, func(a, b test) int { return cmp.Compare(a.name, b.name) })
	if o.list {
		for _, t := range tests {
			fmt.Printf("%-70s %s\n", t.name, t.leftOut)
		}
		return nil
	}
	binary := filepath.Join(dir, "pulsar.test")
	if err := compile(ctx, dir, binary); err != nil {
		return err
	}
	brokers, err := brokersFor(o.on)
	if err != nil {
		return err
	}
	r := &runner{binary: binary, dir: filepath.Join(dir, "pulsar"), logs: filepath.Join(os.TempDir(), "upstream-logs"),
		quick: o.quick}
	if err := os.MkdirAll(r.logs, 0o755); err != nil {
		return err
	}
	results := r.runAll(ctx, tests, brokers, o.parallel)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	table := os.Stdout
	if o.out != "" {
		table, err = os.Create(o.out)
		if err != nil {
			return err
		}
		defer table.Close()
	}
	title := fmt.Sprintf("pulsar-client-go %s, %s", src.Version, time.Since(began).Round(time.Second))
	broken := report(table, title, tests, brokers, results, o.quick)
	if len(broken) > 0 {
		return fmt.Errorf("%d tests pass plain and not wrapped: %v; their logs are in %s", len(broken), broken, r.logs)
	}
	return nil
}
