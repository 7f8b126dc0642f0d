package ui

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

// overview asks the broker for figures while a page shows them.
type overview struct {
	mu      sync.Mutex
	visited time.Time
	polling bool
	got     *figures // nil before the first answer
	err     error
	since   time.Time // when the broker stopped answering
	first   chan struct{}
}

const (
	pollEvery  = 2 * time.Second
	pollFor    = time.Minute // after the last visit
	maxTopics  = 200
	pollers    = 8
	pollLimit  = 10 * time.Second
	firstStats = 200 * time.Millisecond // how long a page waits for the first figures
)

// visit makes the overview ask the broker for figures, until pollFor has passed since the last visit.
func (o *overview) visit(h *Handler) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.visited = time.Now()
	if o.polling {
		return
	}
	o.first = make(chan struct{})
	o.polling = h.start(func(ctx context.Context) { o.poll(ctx, h) })
}

// look returns the newest figures, or nil if there are none yet.
func (o *overview) look(ctx context.Context, h *Handler) *figures {
	o.visit(h)
	o.mu.Lock()
	got, first := o.got, o.first
	o.mu.Unlock()
	if got == nil || time.Since(got.At) > 2*pollEvery {
		wait, cancel := context.WithTimeout(ctx, firstStats)
		defer cancel()
		select {
		case <-first:
		case <-wait.Done():
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.got
}

// trouble returns a text that says since when the broker has not answered, or "" if the broker answers.
func (o *overview) trouble() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		return ""
	}
	text := fmt.Sprintf("The broker has not answered since %s: %s.", o.since.Format("15:04:05"), errorText(o.err))
	if o.got != nil {
		text += fmt.Sprintf(" The figures are of %s.", o.got.At.Format("15:04:05"))
	}
	return text
}

func (o *overview) poll(ctx context.Context, h *Handler) {
	for round := 0; ; round++ {
		begin := time.Now()
		limited, cancel := context.WithTimeout(admin.Once(ctx), pollLimit)
		got, err := h.figures(limited)
		cancel()
		o.mu.Lock()
		old, failed := o.got, o.err != nil
		switch {
		case err == nil:
			got.rates(old)
			o.got, o.err = got, nil
		case !failed:
			o.err, o.since = err, time.Now()
		default:
			o.err = err
		}
		if round == 0 {
			close(o.first)
		}
		if o.polling = time.Since(o.visited) < pollFor && ctx.Err() == nil; !o.polling {
			o.mu.Unlock()
			return
		}
		o.mu.Unlock()
		if failed != (err != nil) || err == nil && !alike(old, got) {
			h.changed()
		}
		select {
		case <-time.After(max(pollEvery, 4*time.Since(begin))): // less often if there are many topics
		case <-ctx.Done():
			o.mu.Lock()
			o.polling = false
			o.mu.Unlock()
			return
		}
	}
}

// alike reports whether two overviews show the same figures, apart from their time.
func alike(a, b *figures) bool {
	return a != nil && b != nil && a.More == b.More && reflect.DeepEqual(a.Subs, b.Subs) &&
		reflect.DeepEqual(a.Dead, b.Dead)
}

func (h *Handler) overviewPage(w http.ResponseWriter, r *http.Request) {
	data := struct {
		Figures *figures
		Wrong   []problem
		Asked   bool // the doctor has examined all subscriptions
	}{Figures: h.overview.look(r.Context(), h)}
	if data.Figures != nil {
		data.Wrong, data.Asked = h.problems(data.Figures)
	}
	h.render(w, r, http.StatusOK, page{Title: "Overview", Name: "overview", Live: true, Data: data})
}
