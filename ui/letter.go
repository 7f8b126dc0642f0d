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

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/payload"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

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
	v := letterView{Topic: x.topic, Subscription: x.subscription, Letter: *l, GroupID: l.Group(),
		Cause: cause(l.Type, l.Reason), History: history(l),
		Commands: []string{x.command("peek", "-id", l.ID, "-payload"),
			x.command("replay", "-id", l.ID, "-canary", "1", "-yes")},
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
		h.fail(w, r, http.StatusNotFound,
			"There is no letter "+show(r.FormValue("id"))+": it was replayed or purged, or there never was one.", "")
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
			if len(value) <= 1<<20 && json.Indent(&out, value, "", "  ") == nil && out.Len() <= 8<<20 {
				// indenting can make more of it
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

// history reads the past of a letter from its properties, the first event first.
func history(l *deadletter.Letter) (all []property) {
	add := func(at time.Time, what string) {
		if !at.IsZero() {
			all = append(all, property{clock(at), what})
		}
	}
	add(l.EventTime, "event time, set by the producer")
	if ms, err := strconv.ParseInt(l.Properties[publishing.OriginPublishTime], 10, 64); err == nil && ms > 0 {
		add(time.UnixMilli(ms), "first published to "+short(l.Origin))
	}
	deliveries := cmp.Or(l.Properties[publishing.AttemptCount], l.Properties[reconsume.PropertyRedeliveryCount])
	died := "died"
	if l.Subscription != "" {
		died += " on subscription " + show(l.Subscription)
	}
	if n := l.Properties[pulsar.SysPropertyReconsumeTimes]; n != "" && n != "0" {
		died += ", after " + show(n) + " retries"
	}
	if deliveries != "" {
		died += ", count " + show(deliveries)
	}
	add(l.Died, died)
	add(l.Published, "stored as a dead letter")
	if l.Replays > 0 {
		all = append(all, property{"",
			fmt.Sprintf("replayed %d times before, last to %s by run %s", l.Replays,
				short(l.Properties[deadletter.PropertyReplayTopic]), show(l.Properties[deadletter.PropertyReplayRun]))})
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

// attachment makes the browser save the response, and not show it.
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
