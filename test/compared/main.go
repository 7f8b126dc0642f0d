// Command compared makes four clients do the same work under the same faults, checks the histories that they write, and
// writes docs/compared.md.
//
//	eval "$(../scripts/pulsar start)"
//	go run .                                  all cells, into results/VERSION.json
//	go run . -only java+/nack/unload          one cell, with its history in out
//	go run . -page ../../docs/compared.md     the page, from all results
//
// A cell is client/workload/fault. The clients are go (plain pulsar-client-go), java, python and redelivery (this
// library). Each has its defaults; with "+" it also has the options that help. The workloads are nack, batch,
// timeout and retry, the faults none, unload, cut and kill.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

var (
	clients   = []string{"go", "go+", "java", "java+", "python", "python+", "redelivery", "redelivery+"}
	workloads = []string{nack, batch, timeout, retry}
	faults    = []string{"none", "unload", "cut", "kill"}
)

// missing returns why a client cannot do a workload; "" if it can.
func missing(client, workload string) string {
	switch name := strings.TrimSuffix(client, "+"); {
	case workload == timeout && name == "go":
		return "has no ack timeout"
	case workload == retry && name == "python":
		return "has no retry topic"
	}
	return ""
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "compared:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	only := flag.String("only", "", "only `cells` with these prefixes, such as java+/nack, separated by commas")
	side := flag.Int("parallel", 4, "number of cells at a time")
	page := flag.String("page", "", "write the page to this `file` without running cells")
	consumer := flag.String("consume", "", "be a consumer of this `client`")
	flag.Parse()
	switch {
	case *consumer != "":
		return consume(*consumer)
	case *page != "":
		return writePage(*page)
	}
	b := broker{os.Getenv("PULSAR_URL"), os.Getenv("PULSAR_ADMIN_URL")}
	if b.url == "" || b.admin == "" {
		return fmt.Errorf("PULSAR_URL is %q and PULSAR_ADMIN_URL %q, want those of a broker", b.url, b.admin)
	}
	programs, err := prepare(ctx)
	if err != nil {
		return err
	}
	var cells []cell
	for _, w := range workloads {
		for _, c := range clients {
			for _, f := range faults {
				chosen := *only == "" || slices.ContainsFunc(strings.Split(*only, ","),
					func(s string) bool { return strings.HasPrefix(c+"/"+w+"/"+f, s) })
				if missing(c, w) == "" && chosen {
					cells = append(cells, cell{c, w, f})
				}
			}
		}
	}
	version, err := b.version(ctx)
	if err != nil {
		return err
	}
	results, err := b.runAll(ctx, programs, cells, *side)
	if err != nil {
		return err
	}
	return keep(version, results)
}

// runAll runs several cells at a time, and prints each result.
func (b broker) runAll(
	ctx context.Context, programs map[string][]string, cells []cell, side int) (map[string]result, error) {
	var mu sync.Mutex
	var first error
	results, turns := map[string]result{}, make(chan struct{}, side)
	var all sync.WaitGroup
	for _, c := range cells {
		turns <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		all.Go(func() {
			defer func() { <-turns }()
			r, err := b.run(ctx, c, programs[strings.TrimSuffix(c.client, "+")])
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				fmt.Fprintf(os.Stderr, "%v: %v\n", c, err)
				first = fmt.Errorf("%v: %w", c, err)
				return
			}
			results[c.String()] = r
			fmt.Printf("%-28v %+v\n", c, r)
		})
	}
	all.Wait()
	if len(results) > 0 && ctx.Err() == nil {
		return results, nil
	}
	return results, first
}

// keep adds results to the file of the broker's version.
func keep(version string, results map[string]result) error {
	path := filepath.Join("results", version+".json")
	all := map[string]result{}
	if text, err := os.ReadFile(path); err == nil {
		if err := json.Unmarshal(text, &all); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	maps.Copy(all, results)
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll("results", 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o600)
}

// version asks the broker for its version.
func (b broker) version(ctx context.Context) (v string, err error) {
	var text []byte
	err = admin.Call(ctx, b.admin, "GET", "brokers/version", nil, &text)
	return strings.Trim(string(text), "\"\n "), err
}
