// Package service examines a running service. It reads the options from the service's own Consumer and Worker, so that
// they need not be written twice:
//
//	setup := doctor.Setup{Admin: doctor.Admin{URL: "http://broker:8080"}}
//	http.Handle("/debug/redelivery", service.Handler(consumer, w, setup))
//
// It is not part of package doctor, since package redelivery imports package doctor.
package service

import (
	"cmp"
	"encoding/json"
	"net/http"
	"time"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/doctor"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// Setups returns the doctor's setups of a Consumer, one for each of its topics. w may be nil. base has the values that
// a Consumer does not have: the admin API, the load, and Kubernetes' grace period. For a Consumer of a pattern, or one
// that Wrap made, the topic is that of base.
func Setups(c *redelivery.Consumer, w *worker.Worker, base doctor.Setup) []doctor.Setup {
	o, s := c.Options(), base
	s.Subscription, s.InitialSubscriptionName = o.Subscription, o.InitialSubscriptionName
	s.RetryTopic, s.DeadLetterTopic = o.RetryTopic, o.DeadLetterTopic
	s.Policy = doctor.Policy{Nack: o.Nack, NackRetryTopic: o.NackRetryTopic, AckTimeout: o.AckTimeout,
		AckTimeoutBackoff: o.AckTimeoutBackoff,
		Reconsume:         o.Reconsume, MaxDeliveries: o.MaxDeliveries, MaxReconsumes: o.MaxReconsumes,
		MemoryLimit: cmp.Or(o.MemoryLimit, -1), DeadBeforeTTL: o.DeadBeforeTTL}
	if o.Type != "" { // after Wrap these options are not known
		s.Type, s.Consumer.ReceiverQueueSize = o.Type, o.ReceiverQueueSize
		s.Consumer.BatchIndexAcknowledgment = &o.BatchIndexAcknowledgment
	}
	if w != nil {
		o := w.Options()
		s.Worker = &doctor.Worker{Concurrency: o.Concurrency, Timeout: o.Timeout, DrainTimeout: o.DrainTimeout,
			Pauses: o.PauseOnFailure}
	}
	if len(o.Topics) == 0 {
		return []doctor.Setup{s}
	}
	var all []doctor.Setup
	for _, topic := range o.Topics {
		s.Topic = topic
		all = append(all, s)
	}
	return all
}

// Handler answers with the options and the doctor's findings, as JSON. The options contain no secrets; the answer names
// topics and consumers, so serve it where only operators have access. Each request examines again, which takes some
// seconds if a consumer seems to do nothing.
func Handler(c *redelivery.Consumer, w *worker.Worker, base doctor.Setup) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			rw.Header().Set("Allow", "GET, HEAD")
			http.Error(rw, "want GET", http.StatusMethodNotAllowed)
			return
		}
		var answer []topic
		for _, s := range Setups(c, w, base) {
			answer = append(answer, topic{s.Topic, s.Subscription, optionsOf(c, w), doctor.Examine(r.Context(), s)})
		}
		rw.Header().Set("Content-Type", "application/json")
		encoder := json.NewEncoder(rw)
		encoder.SetIndent("", "  ")
		_ = encoder.Encode(answer) // the only error is that the client has gone
	})
}

// topic is the answer about one topic.
type topic struct {
	Topic        string           `json:"topic"`
	Subscription string           `json:"subscription"`
	Options      options          `json:"options"`
	Findings     []doctor.Finding `json:"findings"`
}

// options are the options of a Consumer and a Worker, in words for people.
type options struct {
	Type                     string   `json:"type,omitempty"`
	Nack                     []string `json:"nackDelays"` // the first ones
	NackRetryTopic           string   `json:"nackRetryTopic,omitempty"`
	AckTimeout               string   `json:"ackTimeout,omitempty"`
	AckTimeoutBackoff        []string `json:"ackTimeoutDelays,omitempty"`
	Reconsume                []string `json:"reconsumeDelays,omitempty"`
	MaxDeliveries            uint32   `json:"maxDeliveries,omitempty"`
	MaxReconsumes            uint32   `json:"maxReconsumes,omitempty"`
	RetryTopic               string   `json:"retryTopic,omitempty"`
	DeadLetterTopic          string   `json:"deadLetterTopic,omitempty"`
	InitialSubscriptionName  string   `json:"initialSubscriptionName,omitempty"`
	RedeliveryFrom           string   `json:"redeliveryFrom"`
	MemoryLimit              int64    `json:"memoryLimit"`
	AttemptLog               bool     `json:"attemptLog"`
	ReceiverQueueSize        int      `json:"receiverQueueSize,omitempty"`
	BatchIndexAcknowledgment bool     `json:"batchIndexAcknowledgment"`
	Worker                   *ofWork  `json:"worker,omitempty"`
}

type ofWork struct {
	Concurrency    int    `json:"concurrency"`
	Timeout        string `json:"timeout,omitempty"`
	DrainTimeout   string `json:"drainTimeout"`
	PauseOnFailure bool   `json:"pauseOnFailure"`
}

func optionsOf(c *redelivery.Consumer, w *worker.Worker) options {
	o := c.Options()
	said := options{Type: o.Type, Nack: delays(o.Nack), NackRetryTopic: unlessZero(o.NackRetryTopic),
		AckTimeout:        unlessZero(o.AckTimeout),
		AckTimeoutBackoff: delays(o.AckTimeoutBackoff), Reconsume: delays(o.Reconsume), MaxDeliveries: o.MaxDeliveries,
		MaxReconsumes: o.MaxReconsumes,
		RetryTopic:    o.RetryTopic, DeadLetterTopic: o.DeadLetterTopic,
		InitialSubscriptionName: o.InitialSubscriptionName,
		RedeliveryFrom:          string(o.Source), MemoryLimit: o.MemoryLimit, AttemptLog: o.AttemptLog,
		ReceiverQueueSize:        o.ReceiverQueueSize,
		BatchIndexAcknowledgment: o.BatchIndexAcknowledgment}
	if w != nil {
		o := w.Options()
		said.Worker = &ofWork{o.Concurrency, unlessZero(o.Timeout), o.DrainTimeout.String(), o.PauseOnFailure}
	}
	return said
}

// delays returns the first delays of a policy.
func delays(b backoff.RedeliveryBackoff) (all []string) {
	const shown = 8
	for _, d := range backoff.Schedule(b, shown) {
		all = append(all, d.String())
	}
	return all
}

func unlessZero(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}
