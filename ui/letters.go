package ui

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/dlqcommand"
	"github.com/pulsar-redelivery/redelivery/internal/payload"
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

// deadTopic is the index of the topic that a request names, or an answer was written.
func (h *Handler) deadTopic(w http.ResponseWriter, r *http.Request) *letterIndex {
	topic := r.FormValue("topic")
	if topicname.Want(topic) != "" || !topicname.IsPersistent(topic) {
		h.fail(w, r, http.StatusNotFound, fmt.Sprintf("The topic is %q, want the name of a dead letter topic.", show(topic)), "")
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

// lettersView is what the pages of a dead letter topic have.
type lettersView struct {
	view
	Topic, Subscription string
	Adopted             bool
	Commands            []string
	Jobs                []jobView // of the topic

	Group    *letterGroup
	Gone     bool // no letter is in the group any more
	Query    string
	Deep     bool // payloads are searched
	Letters  []summary
	Found    int
	Next     string // link of the next page, if there are more
	Prev     string
	Cut      bool
	CanPurge bool
}

func (h *Handler) viewOf(r *http.Request, x *letterIndex) lettersView {
	return lettersView{view: h.look(r.Context(), x), Topic: x.topic, Subscription: x.subscription, Adopted: x.adopted, Jobs: h.jobs.of(x.topic),
		CanPurge: h.o.ExportDir != ""}
}

// Total and the others are for templates: a view without a snapshot has none.
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

// Cause is the type and the reason.
func (g *letterGroup) Cause() string { return cause(g.Type, g.Reason) }

// Bars are the heights of the bars of a sparkline, from 0 to 20.
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
	maxValue   = 4 << 10          // of a property
)

// groupPage lists the letters of a group, or of the whole topic, that a search finds.
func (h *Handler) groupPage(w http.ResponseWriter, r *http.Request) {
	x := h.deadTopic(w, r)
	if x == nil {
		return
	}
	v := h.viewOf(r, x)
	id := r.FormValue("group")
	v.Query = strings.TrimSpace(r.FormValue("q"))
	v.Deep = r.FormValue("deep") != "" && !h.o.HidePayloads && v.Query != ""
	from, _ := strconv.Atoi(r.FormValue("from")) // 0 for none
	from = max(from, 0)
	if v.snapshot != nil {
		if v.Group = v.byID[id]; id != "" && v.Group == nil {
			v.Gone, v.snapshot = !v.Reading, nil // while it is read, the group may be one of those that come
		}
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
			v.Prev = link("group", "topic", x.topic, "group", id, "q", v.Query, "from", strconv.Itoa(max(from-perPage, 0)))
		}
		found = found[min(from, len(found)):]
		if len(found) > perPage {
			found = found[:perPage]
			v.Next = link("group", "topic", x.topic, "group", id, "q", v.Query, "from", strconv.Itoa(from+perPage))
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

// search finds letters by id, key, and a text of the cause.
func search(letters []summary, g *letterGroup, group, query string) (found []summary) {
	query = strings.ToLower(query)
	for _, l := range letters {
		if group != "" && l.group != g {
			continue
		}
		if query == "" || strings.HasPrefix(l.id, query) || strings.Contains(strings.ToLower(l.key), query) ||
			strings.Contains(strings.ToLower(l.group.Type), query) || strings.Contains(strings.ToLower(l.reason), query) {
			found = append(found, l)
		}
	}
	return found
}

// searchPayloads finds letters by a text of their payload or properties too. It reads the topic.
func (h *Handler) searchPayloads(ctx context.Context, x *letterIndex, v lettersView, group string) (found []summary, err error) {
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

// command is a command line of redelivery dlq for the topic.
func (x *letterIndex) command(verb string, flags ...string) string {
	words := []string{"redelivery dlq", verb, dlqcommand.Quote(short(x.topic))}
	if !x.adopted && x.subscription != dlqcommand.DefaultSubscription {
		words = append(words, "-subscription", dlqcommand.Quote(x.subscription))
	}
	for _, flag := range flags {
		words = append(words, dlqcommand.Quote(flag))
	}
	return strings.Join(words, " ")
}

// letterView is a letter as its page shows it.
type letterView struct {
	Topic, Subscription string
	deadletter.Letter
	GroupID    string
	Cause      string
	Form       string // of the payload: JSON, Avro, text, hex, hidden …
	Text       string // of the payload
	More       int    // bytes that are not shown
	Properties []property
	History    []property
	Commands   []string
	CanPurge   bool
	Jobs       []jobView
}

type property struct{ Name, Value string }

func (h *Handler) letterPage(w http.ResponseWriter, r *http.Request) {
	x := h.deadTopic(w, r)
	if x == nil {
		return
	}
	l, ok := h.letter(w, r, x)
	if !ok {
		return
	}
	v := letterView{Topic: x.topic, Subscription: x.subscription, Letter: *l, GroupID: l.Group(), Cause: cause(l.Type, l.Reason), History: history(l),
		Commands: []string{x.command("peek", "-id", l.ID, "-payload"), x.command("replay", "-id", l.ID, "-canary", "1", "-yes")},
		CanPurge: h.o.ExportDir != "", Jobs: h.jobs.of(x.topic)}
	for _, name := range slices.Sorted(maps.Keys(l.Properties)) {
		value := l.Properties[name]
		text := showLines(value[:min(len(value), maxValue)])
		if len(value) > maxValue {
			text += fmt.Sprintf("… (%s)", size(len(value)))
		}
		v.Properties = append(v.Properties, property{show(name), text})
	}
	v.Form, v.Text, v.More = h.payloadText(r.Context(), x, l)
	h.render(w, r, http.StatusOK, page{Title: "Letter " + l.ID, Name: "letter", Data: v})
}

// letter is the one that a request names, or an answer was written.
func (h *Handler) letter(w http.ResponseWriter, r *http.Request, x *letterIndex) (*deadletter.Letter, bool) {
	l, err := x.letters.Letter(r.Context(), r.FormValue("id"))
	if errors.Is(err, deadletter.ErrNoLetter) {
		h.fail(w, r, http.StatusNotFound, "There is no letter "+show(r.FormValue("id"))+": it was replayed or purged, or there never was one.", "")
		return nil, false
	}
	if err != nil {
		h.unavailable(w, r, err)
		return nil, false
	}
	return &l, true
}

// payloadText lays a payload out for people.
func (h *Handler) payloadText(ctx context.Context, x *letterIndex, l *deadletter.Letter) (form, text string, more int) {
	switch {
	case h.o.HidePayloads:
		return "hidden", "", 0
	case l.Null:
		return "null value", "", 0
	case l.Encrypted:
		return "encrypted", "", 0
	case l.Size == 0:
		return "empty", "", 0
	}
	schema, err := x.schemas.Find(ctx, l.Schema)
	note := ""
	if err != nil {
		note = ", without its schema: " + errorText(err)
	}
	data := l.Payload
	if value, ok := payload.Decode(schema, data); ok {
		switch value := value.(type) {
		case string:
			return "text" + note, showLines(cutBytes(value, maxPayload)), max(len(value)-maxPayload, 0)
		case json.RawMessage:
			form = "JSON"
			if schema != nil && schema.Type == "AVRO" {
				form = "Avro, as JSON"
			}
			var out bytes.Buffer
			if len(value) <= 1<<20 && json.Indent(&out, value, "", "  ") == nil && out.Len() <= 8<<20 { // indenting can make more of it
				value = out.Bytes()
			}
			return form + note, showLines(cutBytes(string(value), maxPayload)), max(len(value)-maxPayload, 0)
		}
	}
	form = "bytes"
	if schema != nil {
		form = "bytes that are not of the schema " + show(schema.Type)
	}
	const shown = 4 << 10
	return form + note, hex.Dump(data[:min(len(data), shown)]), max(len(data)-shown, 0)
}

// cutBytes returns at most n bytes, without half a character.
func cutBytes(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// history is what a letter says about its own past, the first event first.
func history(l *deadletter.Letter) (all []property) {
	add := func(at time.Time, what string) {
		if !at.IsZero() {
			all = append(all, property{clock(at), what})
		}
	}
	add(l.EventTime, "event time, set by the producer")
	if ms, err := strconv.ParseInt(l.Properties["ORIGIN_PUBLISH_TIME"], 10, 64); err == nil && ms > 0 {
		add(time.UnixMilli(ms), "first published to "+short(l.Origin))
	}
	deliveries := cmp.Or(l.Properties["ATTEMPT_COUNT"], l.Properties["REDELIVERY_COUNT"])
	died := "died"
	if l.Subscription != "" {
		died += " on subscription " + show(l.Subscription)
	}
	if n := l.Properties["RECONSUMETIMES"]; n != "" && n != "0" {
		died += ", after " + show(n) + " retries"
	}
	if deliveries != "" {
		died += ", count " + show(deliveries)
	}
	add(l.Died, died)
	add(l.Published, "stored as a dead letter")
	if l.Replays > 0 {
		all = append(all, property{"", fmt.Sprintf("replayed %d times before, last to %s by run %s", l.Replays, short(l.Properties[deadletter.PropertyReplayTopic]), show(l.Properties[deadletter.PropertyReplayRun]))})
	}
	return all
}

// payloadFile is the payload as it is, to be saved.
func (h *Handler) payloadFile(w http.ResponseWriter, r *http.Request) {
	if h.o.HidePayloads {
		h.fail(w, r, http.StatusForbidden, "Payloads are hidden.", "")
		return
	}
	x := h.deadTopic(w, r)
	if x == nil {
		return
	}
	l, ok := h.letter(w, r, x)
	if !ok {
		return
	}
	attachment(w, "letter-"+strings.ReplaceAll(l.ID, ":", "-")+".bin")
	_, _ = w.Write(l.Payload) // the browser has gone
}

// attachment makes the browser save what is written, and not show it.
func attachment(w http.ResponseWriter, name string) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", "attachment; filename*=UTF-8''"+url.PathEscape(name))
}

// exportFile is the letters of a group as redelivery dlq export writes them.
func (h *Handler) exportFile(w http.ResponseWriter, r *http.Request) {
	if h.o.HidePayloads {
		h.fail(w, r, http.StatusForbidden, "Payloads are hidden, so there is no export.", "")
		return
	}
	x := h.deadTopic(w, r)
	if x == nil {
		return
	}
	var filter deadletter.Filter
	if id := r.FormValue("group"); id != "" {
		filter.Groups = []string{id}
	}
	attachment(w, exportName(x.topic))
	if n, err := x.letters.Export(r.Context(), w, filter); err != nil {
		h.log.Error("ui: an export was cut short; its file is not complete", "topic", x.topic, "letters", n, "err", err)
		panic(http.ErrAbortHandler) // so that the browser sees it
	}
}

func exportName(topic string) string {
	name := strings.Map(func(r rune) rune {
		if r == '/' || r == ':' || r == '\\' {
			return '-'
		}
		return r
	}, short(topic))
	return name + "-" + time.Now().UTC().Format("20060102T150405") + ".jsonl"
}
