package ui

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pulsar-redelivery/redelivery/attempts"
	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/dlqcommand"
	"github.com/pulsar-redelivery/redelivery/internal/waiting"
)

// attemptLogs has the logs of attempts whose pages are open. A log is followed until its page has been closed for a
// while.
type attemptLogs struct {
	mu  sync.Mutex
	all map[string]*attemptLog // by topic
}

type attemptLog struct {
	topic   string
	used    time.Time
	opening bool
	log     *attempts.Log // nil until the log was read to its end, and after an error
	err     error
	tried   time.Time
}

const (
	followFor   = 2 * time.Minute  // how long a log is followed after its page was loaded
	openLimit   = 30 * time.Second // the same as in the command `redelivery attempts`
	retryLog    = 10 * time.Second // after an error
	maxWaiting  = 500              // rows of a page
	maxLogs     = 20
	waitFirst   = 200 * time.Millisecond
	lookForIdle = 10 * time.Second
)

// errNoLog says that the subscription has no log of attempts.
var errNoLog = errors.New("there is no log of attempts: the consumer needs WithAttemptLog")

// ownLog returns the log of attempts that a consumer of this process has for a subscription, or nil.
func (h *Handler) ownLog(topic, subscription string) *attempts.Log {
	for _, s := range h.o.Services {
		if log := s.Consumer.AttemptLog(); log != nil && s.consumes(topic, subscription) {
			return log
		}
	}
	return nil
}

// follow returns the log of attempts of a subscription. While the log is still being read, log is nil and opening is
// true.
func (h *Handler) follow(topic, subscription string) (log *attempts.Log, opening bool, err error) {
	if log := h.ownLog(topic, subscription); log != nil {
		return log, false, nil
	}
	name := attempts.Topic(topic, subscription)
	l := &h.logs
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[string]*attemptLog{}
	}
	a := l.all[name]
	if a == nil {
		// followLog removes the logs that are open
		maps.DeleteFunc(l.all, func(_ string, a *attemptLog) bool {
			return !a.opening && time.Since(a.used) > followFor
		})
		if len(l.all) >= maxLogs {
			return nil, false, fmt.Errorf("no more logs of attempts can be opened: %d are open, and the limit is %d; "+
				"each is closed %v after its page was last loaded", len(l.all), maxLogs, followFor)
		}
		a = &attemptLog{topic: name}
		l.all[name] = a
	}
	a.used = time.Now()
	if a.log == nil && !a.opening && time.Since(a.tried) > retryLog {
		a.opening = h.start(func(ctx context.Context) { h.followLog(ctx, a) })
	}
	return a.log, a.opening && a.log == nil, a.err
}

// followLog opens a log, and closes it after its page has been closed for a while.
func (h *Handler) followLog(ctx context.Context, a *attemptLog) {
	log, err := h.openLog(ctx, a.topic, true)
	h.logs.mu.Lock()
	a.log, a.err, a.tried = log, err, time.Now()
	a.opening = err == nil // stays true while the log is followed
	h.logs.mu.Unlock()
	h.changed()
	if err != nil {
		return
	}
	defer log.Close()
	ticker := time.NewTicker(lookForIdle)
	defer ticker.Stop()
	records, last := -1, time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		h.logs.mu.Lock()
		idle := time.Since(a.used) > followFor
		if idle {
			delete(h.logs.all, a.topic)
		}
		h.logs.mu.Unlock()
		if idle {
			return
		}
		if n := log.Stats().Records; n != records || time.Since(last) > time.Minute {
			records, last = n, time.Now()
			h.changed()
		}
	}
}

// openLog opens a log that exists, and reads it to its end.
func (h *Handler) openLog(ctx context.Context, topic string, readOnly bool) (*attempts.Log, error) {
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	topic, err := waiting.Find(ctx, h.api, topic)
	if admin.NotFound(err) {
		return nil, errNoLog
	}
	if err != nil {
		return nil, err
	}
	return waiting.Open(ctx, h.o.Client, attempts.Options{Topic: topic, Name: "redelivery ui", ReadOnly: readOnly,
		Logger: slog.New(slog.DiscardHandler)})
}

// waitingRow is a message for the page.
type waitingRow struct {
	waiting.Message
	Key string // identifies the message in a form
}

func (h *Handler) waitingPage(w http.ResponseWriter, r *http.Request) {
	f := h.overview.look(r.Context(), h)
	data := struct {
		Topic, Subscription string
		Subs                []subscriptionFigures
		Opening, NoLog      bool
		Err                 string
		Rows                []waitingRow
		Sessions            []waiting.Session
		Total, Begun        int
		Delayed             int // messages of this process that wait for their delay
		Command             string
	}{}
	var ok bool
	if data.Topic, data.Subscription, ok = f.chosen(h, w, r); !ok {
		return
	}
	if f != nil {
		data.Subs = f.Subs
	}
	if f != nil && data.Topic != "" {
		log, opening, err := h.follow(data.Topic, data.Subscription)
		for begin := time.Now(); opening && time.Since(begin) < waitFirst; time.Sleep(10 * time.Millisecond) {
			log, opening, err = h.follow(data.Topic, data.Subscription)
		}
		data.Opening = opening
		switch {
		case errors.Is(err, errNoLog):
			data.NoLog = true
		case err != nil:
			data.Err = errorText(err)
		case log != nil:
			var messages []waiting.Message
			messages, data.Sessions = waiting.List(log)
			all := len(messages)
			messages = slices.DeleteFunc(messages, waiting.Message.OnlyBegun)
			data.Total, data.Begun = len(messages), all-len(messages)
			for _, m := range messages[:min(len(messages), maxWaiting)] {
				data.Rows = append(data.Rows, waitingRow{m, m.Key.String()})
			}
		}
		data.Delayed = h.delayed(data.Topic, data.Subscription)
		data.Command = attemptsCommand(data.Topic, data.Subscription)
	}
	h.render(w, r, http.StatusOK, page{Title: "Waiting", Name: "waiting", Live: true, Data: data})
}

// has reports whether the pages show a subscription.
func (f *figures) has(topic, subscription string) bool {
	return slices.ContainsFunc(f.Subs,
		func(s subscriptionFigures) bool { return s.Topic == topic && s.Name == subscription })
}

// chosen returns the subscription that a request names, or else the first one. If there is no such subscription, it
// answers the request and reports false.
func (f *figures) chosen(h *Handler, w http.ResponseWriter, r *http.Request) (topic, subscription string, ok bool) {
	topic, subscription = r.FormValue("topic"), r.FormValue("subscription")
	switch {
	case f == nil:
	case topic == "" && len(f.Subs) > 0:
		return f.Subs[0].Topic, f.Subs[0].Name, true
	case topic != "" && !f.has(topic, subscription):
		h.noSubscription(w, r, topic, subscription, "")
		return topic, subscription, false
	}
	return topic, subscription, true
}

func (h *Handler) noSubscription(w http.ResponseWriter, r *http.Request, topic, subscription, remedy string) {
	h.fail(w, r, http.StatusNotFound, "There is no subscription "+show(subscription)+" of "+short(topic)+".", remedy)
}

// attemptsCommand returns a command line of redelivery attempts.
func attemptsCommand(topic, subscription string, flags ...string) string {
	words := []string{"redelivery attempts -subscription", dlqcommand.Quote(subscription)}
	for _, flag := range flags {
		words = append(words, dlqcommand.Quote(flag))
	}
	return strings.Join(append(words, dlqcommand.Quote(short(topic))), " ")
}
