package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/history"
)

const checkUsage = `Usage: redelivery check [flags] file...

Checks what a client did with its messages: which were lost, stuck, early,
duplicated, out of order, miscounted, or dead letters twice. A history is JSON
lines that any client writes; docs/history.md describes them. Files of several
processes are merged by time; - is standard input.

  redelivery check run.jsonl
  redelivery check -json consumer-*.jsonl

What the client may do:
  -window 2m                        acknowledgements this long before a lost
                                    connection or a kill may be lost
  -patience 1m15s                   how late a due message may come
  -max-deliveries 5                 most deliveries of a message
What it must also do:
  -durable                          keep counts and delays if a consumer dies
  -serial                           acknowledge the messages of a key in order
Output:
  -json                             as JSON, for programs; times in microseconds
  -findings 20                      how many to show; 0 for all

Exit codes: 0; 1 for a finding or an error; 2 for a wrong command line.
`

// checkFlags has the values of the flags of redelivery check, and its findings.
type checkFlags struct {
	rules          history.Rules
	files          []string
	show           int
	asJSON         bool
	stdin          io.Reader
	stdout, stderr io.Writer
	findings       []history.Finding
}

func checkCommand(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	f := &checkFlags{show: 20, stdin: stdin, stdout: stdout, stderr: stderr}
	err := f.parse(args)
	if err == nil {
		err = f.run()
	}
	if err == nil && len(f.findings) > 0 {
		return 1
	}
	return ending{"check", checkUsage, "the flags", stdout, stderr}.exit(err)
}

func (f *checkFlags) parse(args []string) (err error) {
	set := flag.NewFlagSet("redelivery check", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.Func("window", "", positiveInto(&f.rules.Window))
	set.Func("patience", "", positiveInto(&f.rules.Patience))
	set.BoolVar(&f.rules.Durable, "durable", false, "")
	set.BoolVar(&f.rules.Serial, "serial", false, "")
	set.Func("max-deliveries", "", countInto(&f.rules.MaxDeliveries, 1, math.MaxInt32))
	set.Func("findings", "", countInto(&f.show, 0, math.MaxInt32))
	set.BoolVar(&f.asJSON, "json", false, "")
	if f.files, err = parseAll(set, args); err != nil {
		return err
	}
	if len(f.files) == 0 {
		return errUsage{errors.New("no file is given; - is standard input")}
	}
	return nil
}

func (f *checkFlags) run() error {
	var sources []history.Source
	for _, name := range f.files {
		if name == "-" {
			sources = append(sources, history.Source{Name: "stdin", Reader: f.stdin})
			continue
		}
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		sources = append(sources, history.Source{Name: name, Reader: file})
	}
	summary, findings, err := history.Check(f.rules, sources...)
	if err != nil {
		return err
	}
	f.findings = findings
	if f.asJSON {
		return writeJSON(f.stdout, checked{summary, summary.Longest.Microseconds(),
			append([]history.Finding{}, findings...)})
	}
	f.write(summary)
	return nil
}

// checked is the JSON of redelivery check.
type checked struct {
	history.Summary
	Longest  int64             `json:"longestWait"`
	Findings []history.Finding `json:"findings"`
}

// write writes the figures, and each finding with its lines.
func (f *checkFlags) write(s history.Summary) {
	fmt.Fprintf(f.stdout, "%s, %d settled, %d unfinished, %s\n", plural(s.Messages, "message"), s.Settled, s.Unfinished,
		plural(s.Letters, "dead letter"))
	deliveries := plural(s.Deliveries, "delivery")
	if s.Deliveries != 1 {
		deliveries = fmt.Sprintf("%d deliveries", s.Deliveries)
	}
	fmt.Fprintf(f.stdout, "%s, %s, %s, %s\n", deliveries, plural(s.Failures, "failure"), plural(s.Doubles, "double"),
		plural(s.Faults, "fault"))
	if s.Forgotten > 0 {
		fmt.Fprintf(f.stdout, "%s forgotten\n", plural(s.Forgotten, "failure"))
	}
	fmt.Fprintf(f.stdout, "longest wait %v\n", s.Longest.Round(time.Millisecond))
	counts := map[history.Fault]int{}
	for i, found := range f.findings {
		counts[found.Fault]++
		if f.show > 0 && i >= f.show {
			continue
		}
		fmt.Fprintf(f.stdout, "\n%s: message %s %s\n", found.Fault, clean(found.Message), clean(found.Text))
		for _, l := range found.Lines {
			fmt.Fprintf(f.stdout, "  %s: %s\n", clean(l.Place()), clean(l.String()))
		}
	}
	if len(f.findings) == 0 {
		fmt.Fprint(f.stdout, "\nno findings\n")
		return
	}
	fmt.Fprintf(f.stdout, "\n%s:", plural(len(f.findings), "finding"))
	separator := " "
	for _, fault := range history.Faults {
		if counts[fault] > 0 {
			fmt.Fprintf(f.stdout, "%s%d %s", separator, counts[fault], fault)
			separator = ", "
		}
	}
	fmt.Fprintln(f.stdout)
}
