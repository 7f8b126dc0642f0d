package ui

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/pulsar-redelivery/redelivery/doctor"
	"github.com/pulsar-redelivery/redelivery/doctor/service"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// setup returns the doctor's setup of a subscription.
func (h *Handler) setup(topic, subscription string) doctor.Setup {
	var s doctor.Setup
	if h.o.Setup != nil {
		s = h.o.Setup(topic, subscription)
	} else {
		for _, of := range h.o.Services {
			if of.Consumer.Subscription() != subscription {
				continue
			}
			for _, one := range service.Setups(of.Consumer, of.Worker, doctor.Setup{Topic: topic}) {
				if topicname.Same(one.Topic, topic) {
					s = one
				}
			}
		}
	}
	s.Admin, s.Client, s.Topic, s.Subscription = doctor.Admin(h.api), h.o.Client, topic, subscription
	return s
}

// companions returns the names of the retry topic and the dead letter topic of a subscription. The topics need not
// exist.
func (h *Handler) companions(topic, subscription string) (retry, dead string) {
	s := h.setup(topic, subscription)
	return topicname.In(topic, cmp.Or(s.RetryTopic, topicname.Retry(topic, subscription))),
		topicname.In(topic, cmp.Or(s.DeadLetterTopic, topicname.DeadLetter(topic, subscription)))
}

// examinations has the doctor's findings, by topic and subscription.
type examinations struct {
	room chan struct{} // limits the running examinations

	mu  sync.Mutex
	all map[[2]string]*examination
}

type examination struct {
	at       time.Time // of the last findings; zero before the first
	running  bool
	findings []doctor.Finding
}

const (
	examineEvery = time.Minute // while a page is open
	examineLimit = time.Minute
	examiners    = 2
	maxExamined  = 50 // subscriptions; further ones are examined only when their page is opened
)

// examined returns the last findings, and starts another examination if they are old. If maxExamined subscriptions are
// known, it examines another subscription only if opened is set: its page is open.
func (h *Handler) examined(
	topic, subscription string, opened bool) (findings []doctor.Finding, at time.Time, running bool) {
	d := &h.doctor
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil {
		d.all = map[[2]string]*examination{}
	}
	key := [2]string{topic, subscription}
	e := d.all[key]
	if e == nil {
		if !opened && len(d.all) >= maxExamined {
			return nil, time.Time{}, false
		}
		e = &examination{}
		d.all[key] = e
	}
	if !e.running && time.Since(e.at) > examineEvery {
		e.running = h.start(func(ctx context.Context) { h.examine(ctx, e, topic, subscription) })
	}
	return e.findings, e.at, e.running
}

func (h *Handler) examine(ctx context.Context, e *examination, topic, subscription string) {
	select {
	case h.doctor.room <- struct{}{}:
		defer func() { <-h.doctor.room }()
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(ctx, examineLimit)
	defer cancel()
	findings := doctor.Examine(ctx, h.setup(topic, subscription))
	h.doctor.mu.Lock()
	e.at, e.running, e.findings = time.Now(), false, findings
	h.doctor.mu.Unlock()
	h.changed()
}

// problem is the worst finding about a subscription, for a line of the overview.
type problem struct {
	Topic, Subscription string
	doctor.Finding
	Others int // further findings of this subscription that are just as serious
}

// problems returns the worst finding of each subscription, the worst first. asked reports whether all subscriptions
// were examined.
func (h *Handler) problems(f *figures) (all []problem, asked bool) {
	asked = true
	for _, sub := range f.Subs {
		findings, at, _ := h.examined(sub.Topic, sub.Name, false)
		asked = asked && !at.IsZero()
		worst := doctor.Worst(findings)
		if worst < doctor.Warning {
			continue
		}
		serious := slices.DeleteFunc(slices.Clone(findings), func(f doctor.Finding) bool { return f.Status != worst })
		all = append(all, problem{sub.Topic, sub.Name, serious[0], len(serious) - 1})
	}
	slices.SortStableFunc(all, func(a, b problem) int { return int(b.Status) - int(a.Status) })
	return all, asked
}

func (h *Handler) doctorPage(w http.ResponseWriter, r *http.Request) {
	f := h.overview.look(r.Context(), h)
	topic, subscription, ok := f.chosen(h, w, r)
	if !ok {
		return
	}
	data := struct {
		Topic, Subscription string
		Subs                []subscriptionFigures
		Findings            []doctor.Finding
		At                  time.Time
		Running             bool
		Summary             string
	}{Topic: topic, Subscription: subscription}
	if f != nil {
		data.Subs = f.Subs
	}
	if f != nil && topic != "" {
		findings, at, running := h.examined(topic, subscription, true)
		data.Findings, data.At, data.Running = slices.Clone(findings), at, running
		slices.SortStableFunc(data.Findings, func(a, b doctor.Finding) int { return int(b.Status) - int(a.Status) })
		counts := map[doctor.Status]int{}
		for _, found := range findings {
			counts[found.Status]++
		}
		data.Summary = fmt.Sprintf("%d ok, %d unknown, %s, %s", counts[doctor.OK], counts[doctor.Unknown],
			plural(counts[doctor.Warning], "warning"),
			plural(counts[doctor.Problem], "problem"))
	}
	h.render(w, r, http.StatusOK, page{Title: "Doctor", Name: "doctor", Live: true, Data: data})
}
