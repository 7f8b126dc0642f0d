// Package metrics exports Prometheus metrics of Consumers and Workers. docs/observability.md explains each metric, the
// alerts, and a dashboard.
//
//	m, err := metrics.New(prometheus.DefaultRegisterer)
//	...
//	consumer, err := redelivery.Subscribe(client, opts, m.Observe())
//	...
//	w, err := worker.New(consumer, handler, m.ObserveWorker())
//
// Every metric has the label subscription, and WithTopic adds the label topic to counters and histograms. No label
// names a partition, a consumer or a message, so that the number of series does not grow with these.
package metrics

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pulsar-redelivery/redelivery"
)

// Metrics serve any number of Consumers and their Workers. They are safe for concurrent use.
type Metrics struct {
	settings
	settled, redelivered, deadLetters, failures *prometheus.CounterVec
	swallowed, dropped, losses                  *prometheus.CounterVec
	lateness, attempts, handlers                *prometheus.HistogramVec
	vectors                                     []prometheus.Collector // all counters and histograms
	gauges                                      []gauge

	consumers sync.Map                 // *consumer by *redelivery.Consumer; without closed Consumers
	last      atomic.Pointer[consumer] // the Consumer of the last event
}

// Option configures Metrics.
type Option func(*settings) error

type settings struct {
	topic bool
}

// WithTopic (default: the label subscription only) adds the label topic, without partition, to counters and histograms.
// Each topic and each retry topic then has its own series: do not use WithTopic with patterns that match many topics.
func WithTopic() Option {
	return func(s *settings) error {
		s.topic = true
		return nil
	}
}

// New registers metrics with reg. If reg already has Metrics with the same options, New returns these, so that several
// parts of a program can share a registry. The error is either reg's own, or satisfies errors.Is with
// redelivery.ErrInvalidOption.
func New(reg prometheus.Registerer, options ...Option) (*Metrics, error) {
	if reg == nil || reg == (*prometheus.Registry)(nil) {
		return nil, fmt.Errorf("%w: metrics: the registerer is nil, want one, such as prometheus.DefaultRegisterer",
			redelivery.ErrInvalidOption)
	}
	m := &Metrics{}
	for i, option := range options {
		if option == nil {
			return nil, fmt.Errorf("%w: metrics: option %d is nil, want an Option", redelivery.ErrInvalidOption, i+1)
		}
		if err := option(&m.settings); err != nil {
			return nil, err
		}
	}
	m.createMetrics()
	var registered prometheus.AlreadyRegisteredError
	switch err := reg.Register(m); {
	case err == nil:
		return m, nil
	case errors.As(err, &registered):
		if existing, ok := registered.ExistingCollector.(*Metrics); ok {
			return existing, nil
		}
		return nil, fmt.Errorf("metrics: %w", err)
	default:
		return nil, fmt.Errorf("metrics: %w", err)
	}
}

// The buckets of the histograms. Those of lateness and handlers are in seconds.
var (
	latenessBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	attemptsBuckets = []float64{1, 2, 3, 5, 8, 13, 21}
	handlerBuckets  = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
)

func (m *Metrics) createMetrics() {
	labels := func(more ...string) []string {
		all := []string{"subscription"}
		if m.topic {
			all = append(all, "topic")
		}
		return append(all, more...)
	}
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels(more...))
		m.vectors = append(m.vectors, v)
		return v
	}
	histogram := func(name, help string, buckets []float64, more ...string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets},
			labels(more...))
		m.vectors = append(m.vectors, v)
		return v
	}
	m.settled = counter("redelivery_settled_total",
		"Messages by outcome: acked, nacked, snoozed, timed_out, reconsumed, dead_lettered, discarded.", "outcome")
	m.redelivered = counter("redelivery_redelivered_total",
		"Messages handed out again, by cause: nack, timeout, retry_topic, reconnect.", "cause")
	m.deadLetters = counter("redelivery_dead_letters_total",
		"Messages published to the dead letter topic, by reason: max_deliveries, permanent, crashed, explicit, ttl.",
		"reason")
	m.failures = counter("redelivery_failures_total",
		"Failures by operation: ack, reconsume, dead_letter, nack, receive, count, attempt_log.",
		"operation")
	m.swallowed = counter("redelivery_swallowed_total",
		"Copies of settled messages: acknowledged again, not delivered.")
	m.dropped = counter("redelivery_dropped_total",
		"Dropped messages, which come again: they came early and beyond the memory limit, over a lost connection, "+
			"before their partition was this consumer's, or out of order.")
	m.losses = counter("redelivery_losses_total",
		"Events after which messages that the application has may belong to another consumer, by lost thing: "+
			"connection, partition, consumer.", "why")
	m.lateness = histogram("redelivery_lateness_seconds",
		"Time from a message's due time until it was handed out again.",
		latenessBuckets, "cause")
	m.attempts = histogram("redelivery_attempts", "How often a message was handed out until it was settled.",
		attemptsBuckets, "outcome")
	m.handlers = histogram("redelivery_handler_duration_seconds",
		"Time in Workers' handlers, by outcome: acked, nacked, snoozed, dead_lettered.", handlerBuckets,
		"outcome")
	m.gauges = newGauges()
}

// Describe implements prometheus.Collector, for the registry.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.vectors {
		c.Describe(ch)
	}
	for _, g := range m.gauges {
		ch <- g.desc
	}
}

// Collect implements prometheus.Collector, for the registry.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.vectors {
		c.Collect(ch)
	}
	m.collectGauges(ch)
}
