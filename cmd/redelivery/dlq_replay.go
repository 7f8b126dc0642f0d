package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pulsar-redelivery/redelivery/deadletter"
)

func (d *dlq) replay(ctx context.Context) error {
	encryption, _ := d.encryption()
	o := deadletter.ReplayOptions{ToOrigin: d.to == toOrigin, Topic: d.target, Namespaces: d.namespaces,
		Routing: routings[d.routing], Filter: d.filter, Max: d.max, MaxReplays: d.maxReplays,
		Rate: d.rate, Canary: d.canary, CanaryTimeout: d.canaryTimeout, Encryption: encryption, New: d.fresh}
	if !d.yes || o.ToOrigin && !d.others {
		dry := o
		dry.DryRun = true
		plan, err := d.letters.Replay(ctx, dry)
		missed := errors.Is(err, deadletter.ErrOtherNamespace) || errors.Is(err, deadletter.ErrNoTopic) &&
			len(plan.Left) > 0
		if err = explainNamespaces(plan, err); err != nil && !missed {
			return err
		}
		if !d.yes {
			if err := errors.Join(d.planned("Would replay", plan), err); err != nil || d.asJSON {
				return err
			}
			d.printOthers(ctx, "-subscription %s replays these")
			return nil
		}
		if err := d.ask(ctx, plan); err != nil {
			return err
		}
	}
	p := d.progress(ctx, "replayed")
	o.Progress = p.show
	report, err := d.letters.Replay(ctx, o)
	p.end()
	return d.finished(ctx, "Replayed", report, explainNamespaces(report, err))
}

// explainNamespaces adds to ErrOtherNamespace how many letters a replay left out, and the flags that would include
// them.
func explainNamespaces(r deadletter.Report, err error) error {
	if !errors.Is(err, deadletter.ErrOtherNamespace) {
		return err
	}
	var left, flags []string
	for _, name := range slices.Sorted(maps.Keys(r.Namespaces)) {
		left = append(left, fmt.Sprintf("%s of %s", count(r.Namespaces[name]), cmp.Or(name, "others")))
		if name != "" {
			flags = append(flags, "-namespace "+name)
		}
	}
	errs := []error{fmt.Errorf("%w: %s; %s replays them", deadletter.ErrOtherNamespace, strings.Join(left, ", "),
		strings.Join(flags, " "))}
	for _, err := range butCanceled(err) {
		if !errors.Is(err, deadletter.ErrOtherNamespace) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// finished reports the result, and which other subscriptions still keep letters.
func (d *dlq) finished(ctx context.Context, verb string, report deadletter.Report, err error) error {
	if err := d.printResult(verb, report, err); err != nil || d.asJSON {
		return err
	}
	d.printOthers(ctx, "purge -subscription %s empties it")
	return nil
}

// planned reports the result of a dry run.
func (d *dlq) planned(verb string, plan deadletter.Report) error {
	if err := d.checkMatch(plan); err != nil {
		return err
	}
	if d.asJSON {
		return writeJSON(d.stdout, plan)
	}
	d.report(verb, plan)
	d.printAdopted()
	if plan.Creates != "" {
		fmt.Fprintf(d.stdout, "Would create subscription %s, which then keeps all letters until they are "+
			"acknowledged.\n", clean(plan.Creates))
	}
	fmt.Fprintln(d.stdout, "Nothing was changed. Run again with -yes.")
	return nil
}

// ask names the other subscriptions that would get the replayed messages, and asks whether to replay them.
func (d *dlq) ask(ctx context.Context, plan deadletter.Report) error {
	asked := false
	for _, t := range plan.Targets {
		for _, name := range t.Subscriptions {
			if !slices.Contains(t.Origins, name) {
				fmt.Fprintf(d.stderr, "Subscription %s of %s gets them too.\n", clean(name), short(t.Topic))
				asked = true
			}
		}
	}
	if !asked {
		return nil
	}
	fmt.Fprint(d.stderr, "Go on? [y/N] ")
	answered := make(chan string, 1)
	go func() { // this goroutine may last until the process ends, since a read from a terminal cannot be canceled
		answer, _ := bufio.NewReader(d.stdin).ReadString('\n')
		answered <- answer
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(d.stderr)
		return errors.New("interrupted; nothing was changed")
	case answer := <-answered:
		if !strings.HasSuffix(answer, "\n") {
			fmt.Fprintln(d.stderr)
		}
		answer = strings.ToLower(strings.TrimSpace(answer))
		if answer != "y" && answer != "yes" {
			return errors.New("nothing was changed; -others skips this question")
		}
	}
	return nil
}

// printResult prints the result, even if the verb was not completed.
func (d *dlq) printResult(verb string, report deadletter.Report, err error) error {
	if err == nil {
		err = d.checkMatch(report)
	}
	if d.asJSON {
		return errors.Join(err, writeJSON(d.stdout, report))
	}
	if report.Done > 0 || len(report.Left) > 0 || err == nil {
		d.report(verb, report)
		d.printAdopted()
	}
	return err
}

func (d *dlq) report(verb string, r deadletter.Report) {
	line := letters(verb, r.Done)
	if r.Run != "" {
		line = strings.TrimSuffix(line, ".") + ", run " + clean(r.Run)
		if r.Resumed {
			line += ", resumed"
		}
		line += "."
	}
	fmt.Fprintln(d.stdout, line)
	for _, t := range r.Targets {
		line := fmt.Sprintf("  %s to %s", count(t.Count), short(t.Topic))
		var names []string
		for _, name := range t.Subscriptions {
			if n, ok := t.Consumers[name]; ok {
				name += " (" + consumers(n) + ")"
			}
			names = append(names, clean(name))
		}
		if len(names) > 0 {
			line += ", for " + strings.Join(names, ", ")
		}
		fmt.Fprintln(d.stdout, line)
	}
	for _, left := range r.Left {
		ids := strings.Join(left.IDs, ", ")
		if left.Count > len(left.IDs) {
			ids += ", …"
		}
		fmt.Fprintf(d.stdout, "  %s left, %s: %s\n", count(left.Count), clean(left.Why), ids)
	}
	if r.Arrived > 0 {
		fmt.Fprintf(d.stdout, "  %s left, arrived since the replay began; another replay takes them\n",
			count(r.Arrived))
	}
}

func consumers(n int) string {
	switch n {
	case 0:
		return "no consumer"
	case 1:
		return "1 consumer"
	}
	return count(n) + " consumers"
}

// progress writes the progress: on a terminal in one line that changes, elsewhere in a new line every ten seconds.
type progress struct {
	w        io.Writer
	verb     string // replayed, purged or imported
	terminal bool
	total    int // entries in the backlog at the start; 0 if not known
	begin    time.Time
	last     time.Time
	width    int
}

func (d *dlq) progress(ctx context.Context, verb string) *progress {
	p := &progress{w: d.stderr, verb: verb, terminal: terminal(d.stderr), begin: time.Now(), last: time.Now()}
	if info, err := topicNamed(ctx, d.api, d.topic); err == nil {
		for _, s := range info.Subscriptions {
			if s.Name == d.ownSub() {
				p.total = s.Backlog
			}
		}
	}
	return p
}

func (p *progress) show(r deadletter.Report) {
	every := 10 * time.Second
	if p.terminal {
		every = 200 * time.Millisecond
	}
	if time.Since(p.last) < every {
		return
	}
	p.last = time.Now()
	elapsed := time.Since(p.begin).Seconds()
	line := fmt.Sprintf("%s %s, %s read, %.0f/s", count(r.Done), p.verb, count(r.Seen), float64(r.Done)/elapsed)
	if rest := p.total - r.Seen; rest > 0 && r.Seen > 0 && r.Waiting == 0 {
		line += fmt.Sprintf(", about %s left",
			formatDelay(seconds(time.Duration(elapsed/float64(r.Seen)*float64(rest)*1e9).Round(time.Second))))
	}
	if r.Waiting > 0 {
		line = fmt.Sprintf("%s, canary: %d not processed yet", line, r.Waiting)
		if r.WaitsFor != "" {
			line += "; waiting for " + clean(r.WaitsFor)
		}
	}
	if !p.terminal {
		fmt.Fprintln(p.w, line)
		return
	}
	line = fit(line, screen(p.w)-1) // a longer line would wrap, and could not be overwritten
	fmt.Fprintf(p.w, "\r%-*s", p.width, line)
	p.width = len(line)
}

func (p *progress) end() {
	if p.terminal && p.width > 0 {
		fmt.Fprintf(p.w, "\r%*s\r", p.width, "")
	}
}
