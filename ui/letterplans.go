package ui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/pulsar-redelivery/redelivery/deadletter"
)

func (h *Handler) planReplay(ctx context.Context, r *http.Request, x *letterIndex, p *plan, filter deadletter.Filter,
	flags []string) error {
	o := deadletter.ReplayOptions{Filter: filter, Edit: p.edit, Encryption: h.o.Encryption,
		ToOrigin: r.PostFormValue("to") == "origin", New: r.PostFormValue("new") != ""}
	if o.ToOrigin {
		flags = append(flags, "-to", "origin")
	}
	if text := r.PostFormValue("rate"); text != "" && p.Action == "replay" {
		var err error
		if o.Rate, err = strconv.ParseFloat(text, 64); err != nil || !(o.Rate > 0 && o.Rate <= 1e6) {
			return fmt.Errorf("the rate is %q, want letters a second, such as 100", show(text))
		}
		flags = append(flags, "-rate", text)
	}
	if p.Action == "canary" || p.Action == "edit" {
		o.Canary, o.Max = 1, 1
		flags = append(flags, "-canary", "1", "-max", "1")
	}
	x.mu.Lock()
	replaces := x.spent && !o.New
	if replaces {
		o.New = true
		p.About = append(p.About, "This replay replaces the previous test, whose letter died again.")
	}
	x.mu.Unlock()
	if o.New {
		flags = append(flags, "-new")
	}
	dry := o
	dry.DryRun = true
	report, err := x.letters.Replay(ctx, dry)
	if err != nil && !(errors.Is(err, deadletter.ErrOtherNamespace) && report.Done > 0) {
		return err
	}
	if err != nil {
		p.Warn = append(p.Warn, errorText(err))
	}
	p.Command = x.command("replay", append(flags, "-yes")...)
	p.about(report)
	for _, t := range report.Targets {
		for _, name := range t.Subscriptions {
			if !slices.Contains(t.Origins, name) {
				p.Warn = append(p.Warn, fmt.Sprintf("Subscription %s of %s gets the letters too, although they did "+
					"not die on it.", show(name), short(t.Topic)))
			}
		}
	}
	if report.Done == 0 {
		return nil
	}
	p.total = report.Done
	verb := map[string]string{"replay": "Replay", "canary": "Replay as a test", "edit": "Replay as edited"}[p.Action]
	if o.Canary > 0 {
		p.About = append(p.About, "The test ends when its subscription has acknowledged the letter, or when the "+
			"letter is dead again.")
	}
	p.Button = verb + " " + letters(report.Done) + targets(report.Targets)
	p.begin = func(ctx context.Context, progress func(deadletter.Report)) (deadletter.Report, error) {
		run := o
		run.Progress = progress
		x.mu.Lock()
		if replaces { // unless another replay has replaced the test since
			run.New = x.spent
		}
		x.mu.Unlock()
		report, err := x.letters.Replay(ctx, run)
		x.mu.Lock()
		defer x.mu.Unlock()
		if !errors.Is(err, deadletter.ErrBusy) {
			x.spent = o.Max == 1 && errors.Is(err, deadletter.ErrPoison)
		}
		return report, err
	}
	return nil
}

// targets names the topics that letters go to, if there are at most three.
func targets(all []deadletter.Target) string {
	if len(all) == 0 || len(all) > 3 {
		return ""
	}
	var names []string
	for _, t := range all {
		names = append(names, short(t.Topic))
	}
	return " to " + strings.Join(names, ", ")
}

// about adds to the plan where letters go, and which stay.
func (p *plan) about(report deadletter.Report) {
	for _, t := range report.Targets {
		text := fmt.Sprintf("%s to %s", letters(t.Count), short(t.Topic))
		var names []string
		for _, name := range t.Subscriptions {
			text := show(name)
			if n, ok := t.Consumers[name]; ok {
				text += fmt.Sprintf(" (%d connected)", n)
				if n == 0 {
					p.Warn = append(p.Warn, fmt.Sprintf("Subscription %s of %s has no consumer now: the messages "+
						"wait for one.", show(name), short(t.Topic)))
				}
			}
			names = append(names, text)
		}
		if len(names) > 0 {
			text += ", for subscription " + strings.Join(names, ", ")
		}
		p.About = append(p.About, text+".")
	}
	for _, left := range report.Left {
		p.About = append(p.About, fmt.Sprintf("Left in the topic: %s (%s).", letters(left.Count), show(left.Why)))
	}
	if report.Creates != "" {
		p.About = append(p.About, fmt.Sprintf("Subscription %s is created. It then keeps all letters until they are "+
			"acknowledged.", show(report.Creates)))
	}
	if report.Done == 0 {
		p.About = append(p.About, "No letter is left for this change.")
	}
}

func (h *Handler) planPurge(ctx context.Context, x *letterIndex, p *plan, filter deadletter.Filter,
	flags []string) error {
	if h.o.ExportDir == "" {
		return errors.New("there is no directory for the letters that a purge removes, want -export-dir or " +
			"Options.ExportDir")
	}
	report, err := x.letters.Purge(ctx, deadletter.PurgeOptions{Filter: filter, DryRun: true})
	if err != nil {
		return err
	}
	p.about(report)
	p.file = exportName(x.topic)
	p.Command = x.command("purge", append(flags, "-o", p.file, "-yes")...)
	if report.Done == 0 {
		return nil
	}
	p.total = report.Done
	p.About = append(p.About, fmt.Sprintf("The letters are exported to %s on the server first; redelivery dlq import "+
		"brings them back.", show(p.file)))
	p.Button = "Export and delete " + letters(report.Done)
	p.begin = func(ctx context.Context, progress func(deadletter.Report)) (deadletter.Report, error) {
		out, err := h.create(p.file)
		if err != nil {
			return deadletter.Report{}, err
		}
		report, err := x.letters.Purge(ctx, deadletter.PurgeOptions{Filter: filter, Export: out, Progress: progress})
		return report, errors.Join(err, out.Close())
	}
	return nil
}
