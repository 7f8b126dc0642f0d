package ui

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/pulsar-redelivery/redelivery/deadletter"
)

// plans are the requested changes that are not confirmed yet.
type plans struct {
	mu  sync.Mutex
	all map[string]*plan
}

const (
	maxPlans  = 100
	planFor   = 10 * time.Minute // after this, a plan cannot be confirmed any more
	planLimit = time.Minute      // for the dry run
	maxChosen = 1000             // letters that are chosen one by one
)

// plan is a change that a second click confirms.
type plan struct {
	ID      string
	Action  string // for the audit log: replay, canary, edit, purge, forget, redeliver
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
	after   func() // called after the change, so that pages look again
	file    string // name of the export
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

// take returns a plan and forgets it, so that it is confirmed only once.
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

// planPage shows the effect of a change, with the button that confirms it.
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

// do begins the change of a confirmed plan.
func (h *Handler) do(w http.ResponseWriter, r *http.Request) {
	p := h.plans.take(r.PostFormValue("plan"))
	if p == nil {
		h.fail(w, r, http.StatusConflict, "This change was confirmed already, or planned too long ago.",
			"Nothing was changed. Begin again.")
		return
	}
	h.jobs.starting.Lock()
	defer h.jobs.starting.Unlock()
	for _, other := range h.jobs.running() {
		if other.Topic == p.Topic {
			h.fail(w, r, http.StatusConflict,
				"“"+other.What+"” is under way; a topic can have only one change at a time.",
				"Nothing was changed. Begin again when the other change has ended.")
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
