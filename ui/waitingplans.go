package ui

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/pulsar-redelivery/redelivery/attempts"
	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/waiting"
)

// subscriptionOfForm returns the subscription that a form names. If the pages do not show that subscription, it answers
// the request and reports false.
func (h *Handler) subscriptionOfForm(w http.ResponseWriter, r *http.Request) (topic, subscription string, ok bool) {
	topic, subscription = r.PostFormValue("topic"), r.PostFormValue("subscription")
	f := h.overview.look(r.Context(), h)
	if ok = f != nil && f.has(topic, subscription); !ok {
		h.noSubscription(w, r, topic, subscription, "Nothing was changed.")
	}
	return topic, subscription, ok
}

// delayed counts the messages that wait for their delay in consumers of this process.
func (h *Handler) delayed(topic, subscription string) (n int) {
	for _, s := range h.o.Services {
		if s.consumes(topic, subscription) {
			st := s.Consumer.Stats()
			n += st.Waiting - st.Ready
		}
	}
	return n
}

// planRedeliver plans the immediate redelivery of messages that wait in this process, and shows their number.
func (h *Handler) planRedeliver(w http.ResponseWriter, r *http.Request) {
	topic, subscription, ok := h.subscriptionOfForm(w, r)
	if !ok {
		return
	}
	n := h.delayed(topic, subscription)
	if n == 0 {
		h.fail(w, r, http.StatusConflict, "No message waits for its delay in this process any more.",
			"Nothing was changed.")
		return
	}
	p := &plan{Action: "redeliver", Topic: topic, Button: "Redeliver " + plural(n, "message") + " of " + short(topic) +
		" now", total: n, Back: link("waiting", "topic", topic, "subscription", subscription), after: h.changed,
		About: []string{"Their delays end. This changes neither their counts nor their delays after further failures.",
			"Messages that wait in other processes or at the broker keep waiting."}}
	p.begin = func(context.Context, func(deadletter.Report)) (report deadletter.Report, err error) {
		for _, s := range h.o.Services {
			if s.consumes(topic, subscription) {
				report.Done += s.Consumer.RedeliverNow()
			}
		}
		return report, nil
	}
	h.plans.keep(p)
	h.render(w, r, http.StatusOK, page{Title: "Confirm", Name: "plan", Data: p})
}

// planForget plans to remove messages from a log of attempts, and shows their number.
func (h *Handler) planForget(w http.ResponseWriter, r *http.Request) {
	topic, subscription, ok := h.subscriptionOfForm(w, r)
	if !ok {
		return
	}
	chosen := r.PostForm["key"]
	log, _, err := h.follow(topic, subscription)
	if err == nil && log == nil {
		err = errors.New("the log is still being read: try again in some seconds")
	}
	if err != nil {
		h.fail(w, r, http.StatusConflict, errorText(err), "Nothing was changed.")
		return
	}
	var keys []attempts.Key
	var flags []string
	messages, _ := waiting.List(log)
	for _, m := range messages {
		if slices.Contains(chosen, m.Key.String()) {
			keys = append(keys, m.Key)
			flags = []string{"-forget", m.ID}
		}
	}
	if len(keys) == 0 {
		h.fail(w, r, http.StatusConflict, "The log has none of the ticked messages any more.", "Nothing was changed.")
		return
	}
	if len(keys) > 1 {
		flags = nil // redelivery attempts -forget takes only one message
	}
	p := &plan{Action: "forget", Topic: topic, total: len(keys),
		Button: "Forget " + plural(len(keys), "message") + " of " + short(topic),
		Back:   link("waiting", "topic", topic, "subscription", subscription), after: h.changed,
		About: []string{"Their counts start again, and their delays end, when another consumer gets them. A " +
			"consumer that has them now is not affected."}}
	if flags != nil {
		p.Command = attemptsCommand(topic, subscription, flags...)
	}
	p.begin = func(ctx context.Context, progress func(deadletter.Report)) (report deadletter.Report, err error) {
		log := h.ownLog(topic, subscription)
		if log == nil {
			if log, err = h.openLog(ctx, attempts.Topic(topic, subscription), false); err != nil {
				return report, err
			}
			defer log.Close()
		}
		for _, key := range keys {
			if err := log.Forget(ctx, key); err != nil {
				return report, err
			}
			report.Done++
			progress(report)
		}
		return report, nil
	}
	h.plans.keep(p)
	h.render(w, r, http.StatusOK, page{Title: "Confirm", Name: "plan", Data: p})
}
