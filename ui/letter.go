package ui

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// letterView is the data of a letter's page.
type letterView struct {
	Topic, Subscription string
	deadletter.Letter
	GroupID    string
	Cause      string
	Form       string // of the payload: JSON, Avro, text, bytes, hidden …
	Text       string // of the payload
	More       int    // bytes that are not shown
	NoEdit     string // why the payload cannot be edited
	Properties []property
	History    []property
	CanAsk     bool       // the log of attempts may have deliveries of the letter
	Attempts   []property // from the log of attempts
	NoAttempts string     // why there are no Attempts
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
		CanPurge: h.o.ExportDir != "", Jobs: h.jobs.newestOf(x.topic)}
	for _, name := range slices.Sorted(maps.Keys(l.Properties)) {
		value := l.Properties[name]
		text := showLines(value[:min(len(value), maxValue)])
		if len(value) > maxValue {
			text += fmt.Sprintf("… (%s)", size(len(value)))
		}
		v.Properties = append(v.Properties, property{show(name), text})
	}
	laid := h.layOut(r.Context(), x, l)
	v.Form, v.Text = laid.form, showLines(cutBytes(laid.text, maxPayload))
	v.More, v.NoEdit = laid.more+max(len(laid.text)-maxPayload, 0), laid.noEdit
	v.CanAsk = l.OriginID != "" && l.Origin != "" && l.Subscription != ""
	if v.CanAsk && r.FormValue("attempts") != "" {
		v.Attempts, v.NoAttempts = h.attempts(r.Context(), l)
		v.CanAsk = false
	}
	h.render(w, r, http.StatusOK, page{Title: "Letter " + l.ID, Name: "letter", Data: v})
}

// letter returns the letter that a request names. If there is none, it answers the request and reports false.
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

// history returns the past of a letter from its properties, the first event first.
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
	if by := l.Properties[deadletter.PropertyEditedBy]; by != "" {
		ms, _ := strconv.ParseInt(l.Properties[deadletter.PropertyEditedTime], 10, 64) // 1970 if it has no number
		all = append(all, property{clock(time.UnixMilli(ms)), "payload edited by " + show(by)})
	}
	if l.Replays > 0 {
		all = append(all, property{"",
			fmt.Sprintf("replayed %d times before, last to %s by run %s", l.Replays,
				short(l.Properties[deadletter.PropertyReplayTopic]), show(l.Properties[deadletter.PropertyReplayRun]))})
	}
	return all
}

// payloadFile serves the payload as it is, as a file.
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
	_, _ = w.Write(l.Payload) // fails only if the browser has gone
}

// attachment makes the browser save the response instead of showing it.
func attachment(w http.ResponseWriter, name string) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", "attachment; filename*=UTF-8''"+url.PathEscape(name))
}

// exportFile serves the letters of a group, or of the topic, in the format of redelivery dlq export.
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
		panic(http.ErrAbortHandler) // so that the browser notices
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
