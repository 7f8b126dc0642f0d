package ui

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/pulsar-redelivery/redelivery/deadletter"
)

// jobs are the confirmed changes. A job continues when its page is closed.
type jobs struct {
	starting sync.Mutex // held while a handler checks that no change of a topic runs, and begins one

	mu  sync.Mutex
	all []*job // the newest last
}

const maxJobs = 50 // jobs that are remembered, unless more of them run

// job is a confirmed change.
type job struct {
	id     string
	plan   *plan
	began  time.Time
	cancel context.CancelFunc

	mu     sync.Mutex
	report deadletter.Report
	ended  time.Time
	err    error
	shown  time.Time // when open pages were last refreshed
}

// begin runs a plan. It returns nil if the Handler is closed.
func (j *jobs) begin(h *Handler, p *plan, from string) *job {
	x := &job{id: rand.Text(), plan: p, began: time.Now(), cancel: func() {}}
	log := h.log.With("action", p.Action, "topic", p.Topic, "from", from, "job", x.id)
	var ctx context.Context
	ctx, x.cancel = context.WithCancel(h.ctx)
	ok := h.start(func(context.Context) {
		defer x.cancel()
		report, err := p.begin(ctx, func(r deadletter.Report) { x.progress(h, r) })
		x.mu.Lock()
		x.report, x.err, x.ended = report, err, time.Now()
		x.mu.Unlock()
		if err != nil {
			log.Warn("ui: a change ended with an error", "letters", report.Done, "run", report.Run, "err", err)
		} else {
			log.Info("ui: a change is done", "letters", report.Done, "run", report.Run)
		}
		if p.after != nil {
			p.after()
		}
		h.changed()
	})
	if !ok {
		x.cancel()
		return nil
	}
	log.Info("ui: a change begins", "what", p.Button, "command", p.Command)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = append(j.all, x)
	if len(j.all) > maxJobs {
		if i := slices.IndexFunc(j.all, func(x *job) bool { return x.view().Ended }); i >= 0 {
			j.all = slices.Delete(j.all, i, i+1)
		}
	}
	h.changed()
	return x
}

func (x *job) progress(h *Handler, r deadletter.Report) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.report = r
	if time.Since(x.shown) > 200*time.Millisecond {
		x.shown = time.Now()
		h.changed()
	}
}

// jobView is a job at one moment.
type jobView struct {
	ID, Action, Topic, What, Command string
	Began                            time.Time
	Took                             string
	Done, Total                      int
	Percent                          int
	Rate                             float64
	Left                             string // the estimated time until the end
	Waiting                          string // the subscription that settles the first letters, the canary
	Ended, Failed, Unfinished        bool
	Err                              string
	Run                              string
	Resumed                          bool
	Stays                            []string
	File                             string
	Back                             string
}

func (x *job) view() jobView {
	x.mu.Lock()
	defer x.mu.Unlock()
	p, r := x.plan, x.report
	v := jobView{ID: x.id, Action: p.Action, Topic: p.Topic, What: p.Button, Command: p.Command, Began: x.began,
		Done: r.Done, Total: p.total, Run: r.Run,
		Resumed: r.Resumed, Ended: !x.ended.IsZero(), Failed: x.err != nil, File: p.file, Back: p.Back}
	end := time.Now()
	if v.Ended {
		end = x.ended
	}
	took := end.Sub(x.began)
	v.Took = span(took)
	if took > 0 {
		v.Rate = float64(r.Done) / took.Seconds()
	}
	if p.total > 0 {
		v.Percent = min(100*r.Done/p.total, 100)
	}
	if rest := p.total - r.Done; !v.Ended && rest > 0 && r.Done > 0 && r.Waiting == 0 {
		v.Left = span(time.Duration(float64(took) / float64(r.Done) * float64(rest)))
	}
	if r.Waiting > 0 && !v.Ended {
		v.Waiting = show(r.WaitsFor)
		if v.Waiting == "" {
			v.Waiting = "its subscription"
		}
	}
	if x.err != nil {
		v.Unfinished = errors.Is(x.err, deadletter.ErrUnfinished)
		switch {
		case errors.Is(x.err, deadletter.ErrPoison):
			v.Err = "The letter is dead again: " + errorText(x.err)
		case errors.Is(x.err, context.Canceled):
			v.Err = "It was stopped. Choose the same letters again to continue."
		default:
			v.Err = errorText(x.err)
		}
	}
	for _, left := range r.Left {
		v.Stays = append(v.Stays, fmt.Sprintf("Left in the topic: %s (%s)", letters(left.Count), show(left.Why)))
	}
	if r.Arrived > 0 {
		v.Stays = append(v.Stays,
			fmt.Sprintf("Another replay is needed for %s that arrived after this one began", letters(r.Arrived)))
	}
	return v
}

// list returns all jobs, the newest first.
func (j *jobs) list() []jobView {
	return j.views(func(jobView) bool { return true })
}

func (j *jobs) running() []jobView {
	return j.views(func(v jobView) bool { return !v.Ended })
}

// newestOf returns the newest job of a topic, if there is one. Older jobs have ended, since a topic has one running job
// at most.
func (j *jobs) newestOf(topic string) []jobView {
	all := j.views(func(v jobView) bool { return v.Topic == topic })
	return all[:min(1, len(all))]
}

func (j *jobs) views(wanted func(jobView) bool) (all []jobView) {
	j.mu.Lock()
	jobs := slices.Clone(j.all)
	j.mu.Unlock()
	for _, x := range slices.Backward(jobs) {
		if v := x.view(); wanted(v) {
			all = append(all, v)
		}
	}
	return all
}

func (j *jobs) find(id string) *job {
	j.mu.Lock()
	defer j.mu.Unlock()
	if i := slices.IndexFunc(j.all, func(x *job) bool { return x.id == id }); i >= 0 {
		return j.all[i]
	}
	return nil
}

// job returns the job that a request names. If there is none, it answers the request and returns nil.
func (h *Handler) job(w http.ResponseWriter, r *http.Request) *job {
	x := h.jobs.find(r.FormValue("id"))
	if x == nil {
		h.fail(w, r, http.StatusNotFound,
			"This change is not remembered: the server was restarted, or many changes came after it.",
			"An unfinished replay continues when you choose the same letters again.")
	}
	return x
}

func (h *Handler) jobPage(w http.ResponseWriter, r *http.Request) {
	if x := h.job(w, r); x != nil {
		h.render(w, r, http.StatusOK, page{Title: x.plan.Action, Name: "job", Live: true, Data: x.view()})
	}
}

// stop ends a job.
func (h *Handler) stop(w http.ResponseWriter, r *http.Request) {
	if x := h.job(w, r); x != nil {
		h.log.Info("ui: a change is stopped",
			"action", x.plan.Action, "topic", x.plan.Topic, "job", x.id, "from", r.RemoteAddr)
		x.cancel()
		redirect(w, link("job", "id", x.id))
	}
}

// create creates the file of an export. The file must not exist.
func (h *Handler) create(name string) (*os.File, error) {
	return os.OpenFile(filepath.Join(h.o.ExportDir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
}

// exportedFile serves the file that a purge or an edit has exported.
func (h *Handler) exportedFile(w http.ResponseWriter, r *http.Request) {
	x := h.job(w, r)
	switch {
	case x == nil:
	case h.o.HidePayloads:
		h.fail(w, r, http.StatusForbidden, "Payloads are hidden.", "")
	case x.plan.file == "":
		h.fail(w, r, http.StatusNotFound, "This change exports nothing.", "")
	default:
		attachment(w, x.plan.file)
		http.ServeFile(w, r, filepath.Join(h.o.ExportDir, x.plan.file))
	}
}
