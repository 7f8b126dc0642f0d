package ui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/dlqcommand"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

func (h *Handler) topicsPage(w http.ResponseWriter, r *http.Request) {
	f := h.overview.look(r.Context(), h)
	data := struct {
		Figures *figures
		Jobs    []jobView
	}{f, h.jobs.list()}
	h.render(w, r, http.StatusOK, page{Title: "Dead letters", Name: "letters", Live: true, Data: data})
}

// deadTopic returns the index of the topic that a request names. If there is none, it answers the request and returns
// nil.
func (h *Handler) deadTopic(w http.ResponseWriter, r *http.Request) *letterIndex {
	topic := r.FormValue("topic")
	if topicname.Want(topic) != "" || !topicname.IsPersistent(topic) {
		h.fail(w, r, http.StatusNotFound,
			fmt.Sprintf("The topic is %q, want the name of a dead letter topic.", show(topic)), "")
		return nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), statePatience)
	defer cancel()
	x, err := h.index(ctx, topicname.Base(topicname.Full(topic)))
	if err != nil {
		h.unavailable(w, r, err)
		return nil
	}
	return x
}

// lettersView is the data of the pages of a dead letter topic.
type lettersView struct {
	view
	Topic, Subscription string
	Commands            []string
	Jobs                []jobView // of the topic

	Group    *letterGroup
	Gone     bool // the group has no letters any more
	Query    string
	Deep     bool // payloads are searched
	Letters  []summary
	Found    int
	Next     string // link to the next page; "" on the last page
	Prev     string
	Cut      bool // a search in payloads ended at a full page
	CanPurge bool
}

func (h *Handler) viewOf(r *http.Request, x *letterIndex) lettersView {
	return lettersView{view: h.look(r.Context(), x), Topic: x.topic, Subscription: x.subscription,
		Jobs: h.jobs.newestOf(x.topic), CanPurge: h.o.ExportDir != ""}
}

// Total and the following methods are for templates. A view without a snapshot has no letters.
func (v lettersView) Total() int {
	if v.snapshot == nil {
		return 0
	}
	return v.total
}

func (v lettersView) Ready() bool { return v.snapshot != nil }

func (v lettersView) Groups() []*letterGroup {
	if v.snapshot == nil {
		return nil
	}
	return v.groups
}

func (v lettersView) From() time.Time { return v.from }
func (v lettersView) To() time.Time   { return v.to }
func (v lettersView) ReadAt() string  { return v.at.Format("15:04:05") }

// Cause returns the type and the reason.
func (g *letterGroup) Cause() string { return cause(g.Type, g.Reason) }

// Bars returns the bars of a sparkline, with heights from 0 to 20.
func (g *letterGroup) Bars() (all []bar) {
	for i, n := range g.times {
		if n > 0 {
			height := max(1, 20*n/g.most)
			all = append(all, bar{X: 4 * i, Y: 20 - height, Height: height})
		}
	}
	return all
}

type bar struct{ X, Y, Height int }

// The fields of a summary, for templates.
func (s summary) ID() string      { return s.id }
func (s summary) Key() string     { return s.key }
func (s summary) Cause() string   { return cause(s.group.Type, s.reason) }
func (s summary) Group() string   { return s.group.ID }
func (s summary) Died() time.Time { return s.died }
func (s summary) Size() int       { return s.size }
func (s summary) Replays() int    { return s.replays }

func (h *Handler) groupsPage(w http.ResponseWriter, r *http.Request) {
	x := h.deadTopic(w, r)
	if x == nil {
		return
	}
	v := h.viewOf(r, x)
	v.Commands = []string{x.command("groups")}
	h.render(w, r, http.StatusOK, page{Title: short(x.topic), Name: "groups", Live: true, Data: v})
}

const (
	perPage    = 100
	deepLimit  = 20 * time.Second // of a search in payloads
	maxPayload = 64 << 10         // bytes that a page shows
	maxValue   = 4 << 10          // bytes of a property that a page shows
)

// groupPage lists the letters of a group, or of the whole topic, that match a search.
func (h *Handler) groupPage(w http.ResponseWriter, r *http.Request) {
	x := h.deadTopic(w, r)
	if x == nil {
		return
	}
	v := h.viewOf(r, x)
	id := r.FormValue("group")
	v.Query = strings.TrimSpace(r.FormValue("q"))
	v.Deep = r.FormValue("deep") != "" && !h.o.HidePayloads && v.Query != ""
	from, _ := strconv.Atoi(r.FormValue("from")) // 0 if the request names none
	from = max(from, 0)
	if v.snapshot != nil {
		if v.Group = v.byID[id]; id != "" && v.Group == nil {
			v.Gone, v.snapshot = !v.Reading, nil // during a reading, the group may still appear
		}
	}
	pageFrom := func(n int) string {
		return link("group", "topic", x.topic, "group", id, "q", v.Query, "from", strconv.Itoa(n))
	}
	if v.snapshot != nil {
		var found []summary
		if v.Deep {
			var err error
			if found, err = h.searchPayloads(r.Context(), x, v, id); err != nil {
				h.unavailable(w, r, err)
				return
			}
			v.Cut = len(found) >= perPage
		} else {
			found = search(v.letters, v.Group, id, v.Query)
		}
		v.Found = len(found)
		if from > 0 {
			v.Prev = pageFrom(max(from-perPage, 0))
		}
		found = found[min(from, len(found)):]
		if len(found) > perPage {
			found = found[:perPage]
			v.Next = pageFrom(from + perPage)
		}
		v.Letters = found
	}
	var flags []string
	if id != "" {
		flags = []string{"-group", id}
	}
	v.Commands = []string{x.command("peek", append(flags, "-payload")...)}
	h.render(w, r, http.StatusOK, page{Title: "Letters", Name: "group", Live: !v.Deep, Data: v})
}

// search finds letters by ID, by key, and by a text in the cause.
func search(letters []summary, g *letterGroup, group, query string) (found []summary) {
	query = strings.ToLower(query)
	has := func(text string) bool { return strings.Contains(strings.ToLower(text), query) }
	for _, l := range letters {
		if group != "" && l.group != g {
			continue
		}
		if strings.HasPrefix(l.id, query) || has(l.key) || has(l.group.Type) || has(l.reason) {
			found = append(found, l)
		}
	}
	return found
}

// searchPayloads finds at most a page of letters, by ID, and by a text in the key, the payload or the properties, which
// include the cause. It reads the topic.
func (h *Handler) searchPayloads(
	ctx context.Context, x *letterIndex, v lettersView, group string) (found []summary, err error) {
	ctx, cancel := context.WithTimeout(ctx, deepLimit)
	defer cancel()
	known := make(map[string]summary, len(v.letters))
	for _, l := range v.letters {
		known[l.id] = l
	}
	query := []byte(v.Query)
	for l, err := range x.letters.Peek(ctx, 0) {
		if errors.Is(err, context.DeadlineExceeded) {
			return found, fmt.Errorf("the search took longer than %v, want a search without payloads", deepLimit)
		}
		if err != nil {
			return found, err
		}
		s, ok := known[l.ID]
		if !ok || group != "" && s.group != v.Group {
			continue
		}
		hit := bytes.Contains(l.Payload, query) || strings.Contains(l.Key, v.Query) || strings.HasPrefix(l.ID, v.Query)
		for name, value := range l.Properties {
			hit = hit || strings.Contains(name, v.Query) || strings.Contains(value, v.Query)
		}
		if hit {
			if found = append(found, s); len(found) == perPage {
				break
			}
		}
	}
	return found, nil
}

// command returns a command line of redelivery dlq for the topic.
func (x *letterIndex) command(verb string, flags ...string) string {
	words := []string{"redelivery dlq", verb, dlqcommand.Quote(short(x.topic))}
	for _, flag := range flags {
		words = append(words, dlqcommand.Quote(flag))
	}
	return strings.Join(words, " ")
}
