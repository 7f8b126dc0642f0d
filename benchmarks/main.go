// Benchmarks makes four Pulsar clients do the same work with the same broker: this library, pulsar-client-go by itself,
// the Java client and the Python client. Each client has a process of its own. The report says how precise the clients
// are, and how much CPU and memory they use.
//
//	eval "$(../test/scripts/pulsar start)"
//	go run . -quick
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pulsar-redelivery/redelivery/benchmarks/internal/worker"
)

// workerArg is the argument that makes this program a worker.
const workerArg = "worker"

type config struct {
	quick          bool
	works, clients string
	out, docs      string
	from           string
	redraw         bool
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == workerArg {
		exit(worker.Run(os.Stdin, os.Stdout))
	}
	var c config
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(),
			"Compares Pulsar clients in precision and cost, at the broker that PULSAR_URL and "+
				"PULSAR_ADMIN_URL name.\n\n")
		flag.PrintDefaults()
	}
	flag.BoolVar(&c.quick, "quick", false, "smaller works: under 4 minutes in place of 25")
	flag.StringVar(&c.works, "works", "W1,W2,W3,W4,W5,cost", "works to do, separated by commas: W1 nacks, "+
		"W2 ack timeouts,\nW3 many waiting, W4 consuming, W5 idle consumers, cost growth by size;\nwith -quick the "+
		"default has no cost")
	flag.StringVar(&c.clients, "clients", "redelivery,go,java,python", "clients to measure, separated by commas")
	flag.StringVar(&c.out, "out", "out", "write results.json, results.md and pictures into this `folder`")
	flag.StringVar(&c.docs, "docs", "",
		"write the tables into RESULTS.md too, and the pictures into img/ of this `folder`")
	flag.StringVar(&c.from, "from", "", "run nothing: write the report of this results.json `file`")
	flag.BoolVar(&c.redraw, "redraw", false, "run nothing: draw the pictures of -docs from the tables of RESULTS.md")
	flag.Parse()
	if set := map[string]bool{}; c.quick {
		flag.Visit(func(f *flag.Flag) { set[f.Name] = true })
		if !set["works"] {
			c.works = "W1,W2,W3,W4,W5"
		}
	}
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "benchmarks: %q is no flag\n", flag.Arg(0))
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	exit(run(ctx, c))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A report has the results of a run.
type report struct {
	Machine machine  `json:"machine"`
	Quick   bool     `json:"quick"`
	Left    []string `json:"left,omitempty"` // clients that were left out, and why
	Results []result `json:"results"`
}

func run(ctx context.Context, c config) error {
	todo, err := c.todo()
	if err != nil {
		return err
	}
	if c.docs != "" && c.quick {
		return errors.New("-docs is set, want it without -quick: the documents have the figures of a full run")
	}
	if c.redraw {
		return redraw(todo, c.docs)
	}
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return err
	}
	var rep report
	if c.from != "" {
		data, err := os.ReadFile(c.from)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(data, &rep); err != nil {
			return fmt.Errorf("%s: %w", c.from, err)
		}
	} else if rep, err = c.measure(ctx, todo); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if err := rep.write(todo, c.out, c.docs); err != nil {
		return err
	}
	failed := 0
	for _, r := range rep.Results {
		if r.Failed != "" {
			failed++
			fmt.Fprintf(os.Stderr, "benchmarks: %s, %s, %s: %s\n", r.Work, r.Setting, r.Client, r.Failed)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d failed", failed, len(rep.Results))
	}
	return nil
}

// todo returns the works that were chosen.
func (c config) todo() ([]work, error) {
	size := func(full, quick int) int {
		if c.quick {
			return quick
		}
		return full
	}
	var todo []work
	all := append(works(size), costs(size)...)
	for name := range strings.SplitSeq(c.works, ",") {
		n := len(todo)
		for _, w := range all {
			if name != "" && strings.HasPrefix(w.name, name) {
				w.settings = slices.DeleteFunc(w.settings, func(s setting) bool { return s.full && c.quick })
				todo = append(todo, w)
			}
		}
		if len(todo) == n {
			return nil, fmt.Errorf("-works has %q, want some of W1, W2, W3, W4, W5, cost", name)
		}
	}
	return todo, nil
}

// measure makes all clients do the chosen works.
func (c config) measure(ctx context.Context, todo []work) (report, error) {
	b, err := connect(os.Getenv("PULSAR_URL"), os.Getenv("PULSAR_ADMIN_URL"))
	if err != nil {
		return report{}, err
	}
	defer b.client.Close()
	rep := report{Quick: c.quick}
	p := &progress{begin: time.Now()}
	defer p.end()
	programs, left, err := prepare(ctx, strings.Split(c.clients, ","), p)
	if err != nil {
		return report{}, err
	}
	rep.Left = left
	rep.Machine = describeMachine(b, programs)
	r := runner{b, programs, p}
	for _, w := range todo {
		p.total += max(1, w.rounds) * len(slices.DeleteFunc(r.cells(w), func(c cell) bool { return c.client.none }))
	}
	r.warmUp(ctx, todo[0])
	for _, w := range todo {
		rep.Results = append(rep.Results, r.run(ctx, w)...)
		if ctx.Err() != nil {
			break
		}
		if err := rep.save(filepath.Join(c.out, "results.json")); err != nil { // in case a later work fails
			return report{}, err
		}
	}
	return rep, nil
}
