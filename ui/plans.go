package ui

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pulsar-redelivery/redelivery/deadletter"
)

// plans are the changes that were asked for once and not confirmed yet.
type plans struct {
	mu  sync.Mutex
	all map[string]*plan
}

const (
	maxPlans  = 100
	planFor   = 10 * time.Minute // then it has to be asked for again
	planLimit = time.Minute      // of the dry run
	maxChosen = 1000             // letters that are chosen one by one
)

// plan is a change that a second click makes.
type plan struct {
	ID      string
	Action  string // of the audit log: replay, canary, edit, purge, forget, redeliver
	Topic   string
	Button  string // names the change and the number of letters
	About   []string
	Warn    []string
	Command string
	Text    string // the payload of an edited letter
	Back    string
	made    time.Time
	total   int
	begin   func(ctx context.Context, progress func(deadletter.Report)) (deadletter.Report, error)
	after   func() // a page looks again
	file    string // of an export
	edit    *deadletter.Edit
}

// keep remembers a plan until it is confirmed.
func (p *plans) keep(x *plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x.ID, x.made = rand.Text(), time.Now()
	if p.all == nil {
		p.all = map[string]*plan{}
	}
	maps.DeleteFunc(p.all, func(_ string, old *plan) bool { return time.Since(old.made) > planFor })
	if len(p.all) >= maxPlans {
		oldest := slices.MinFunc(slices.Collect(maps.Values(p.all)),
			func(a, b *plan) int { return a.made.Compare(b.made) })
		delete(p.all, oldest.ID)
	}
	p.all[x.ID] = x
}

// take returns a plan once.
func (p *plans) take(id string) *plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.all[id]
	delete(p.all, id)
	if x == nil || time.Since(x.made) > planFor {
		return nil
	}
	return x
}

// planPage shows the effect of a change, with the button that makes it.
func (h *Handler) planPage(w http.ResponseWriter, r *http.Request) {
	switch r.PostFormValue("action") {
	case "forget":
		h.planForget(w, r)
		return
	case "redeliver":
		h.planRedeliver(w, r)
		return
	}
	x := h.deadTopic(w, r)
	if x == nil {
		return
	}
	var filter deadletter.Filter
	var flags []string
	if id := r.PostFormValue("group"); id != "" {
		filter.Groups = []string{id}
		flags = append(flags, "-group", id)
	}
	filter.IDs = r.PostForm["id"]
	if len(filter.IDs) > maxChosen {
		h.fail(w, r, http.StatusBadRequest,
			fmt.Sprintf("%d letters are chosen, want at most %d, or the whole group.", len(filter.IDs), maxChosen), "")
		return
	}
	for _, id := range filter.IDs {
		flags = append(flags, "-id", id)
	}
	if r.PostFormValue("selection") != "" && len(filter.IDs) == 0 {
		h.fail(w, r, http.StatusBadRequest, "No letter is chosen.", "Go back and tick letters.")
		return
	}
	p := &plan{Action: r.PostFormValue("action"), Topic: x.topic, after: func() { x.invalidate(); h.changed() }}
	p.Back = link("groups", "topic", x.topic)
	if len(filter.Groups) > 0 {
		p.Back = link("group", "topic", x.topic, "group", filter.Groups[0])
	}
	ctx, cancel := context.WithTimeout(r.Context(), planLimit)
	defer cancel()
	var err error
	switch p.Action {
	case "canary", "replay":
		err = h.planReplay(ctx, r, x, p, filter, flags)
	case "edit":
		err = h.planEdit(ctx, r, x, p, filter)
	case "purge":
		err = h.planPurge(ctx, x, p, filter, flags)
	default:
		err = fmt.Errorf("the action is %q, want canary, replay, edit, purge, forget or redeliver", show(p.Action))
	}
	if err != nil {
		h.fail(w, r, http.StatusConflict, errorText(err), "Nothing was changed.")
		return
	}
	if p.begin != nil {
		h.plans.keep(p)
	}
	h.render(w, r, http.StatusOK, page{Title: "Confirm", Name: "plan", Data: p})
}

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
	if x.spent && !o.New {
		o.New = true
		p.About = append(p.About, "It takes the place of the test before, whose letter died again.")
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
				p.Warn = append(p.Warn, fmt.Sprintf("Subscription %s of %s gets them too: they did not die there.",
					show(name), short(t.Topic)))
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

// targets names the topics that letters go to, if they are few.
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

// about says where letters go, and which stay.
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
		p.About = append(p.About, fmt.Sprintf("%s stay: %s.", letters(left.Count), show(left.Why)))
	}
	if report.Creates != "" {
		p.About = append(p.About, fmt.Sprintf("Subscription %s is created. It then keeps all letters until they are "+
			"acknowledged.", show(report.Creates)))
	}
	if report.Done == 0 {
		p.About = append(p.About, "No letter is left to do this to.")
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
	p.About = append(p.About, fmt.Sprintf("They are exported to %s on the server first; redelivery dlq import "+
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

// do makes the change of a plan.
func (h *Handler) do(w http.ResponseWriter, r *http.Request) {
	p := h.plans.take(r.PostFormValue("plan"))
	if p == nil {
		h.fail(w, r, http.StatusConflict, "This was confirmed already, or too long ago.",
			"Nothing was changed. Begin again.")
		return
	}
	for _, other := range h.jobs.running() {
		if other.Topic == p.Topic {
			h.fail(w, r, http.StatusConflict, "“"+other.What+"” is under way, and only one change of a topic can be.",
				"Nothing was changed. Begin again when that has ended.")
			return
		}
	}
	j := h.jobs.begin(h, p, r.RemoteAddr)
	if j == nil {
		h.fail(w, r, http.StatusServiceUnavailable, "The server is being stopped. Nothing was changed.", "")
		return
	}
	redirect(w, link("job", "id", j.id))
}
