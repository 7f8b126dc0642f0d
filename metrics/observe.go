package metrics

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// Observe returns an option for redelivery.Subscribe, SubscribeWith and Wrap that adds all metrics but those of
// ObserveWorker. Any number of Consumers may share it.
func (m *Metrics) Observe() redelivery.Option {
	return redelivery.WithObserver(redelivery.Observer{
		Untimed: true,
		Subscribed: func(c *redelivery.Consumer) {
			m.consumers.Store(c, m.newConsumer(c))
		},
		Closed: func(c *redelivery.Consumer) {
			m.consumers.Delete(c)
			m.last.Store(nil) // so that the Consumer can be freed
		},
		Delivered: m.delivered,
		Settled:   m.settle,
		Dropped:   func(e redelivery.Event) { m.series(e).dropped.Inc() },
		Swallowed: func(e redelivery.Event) { m.series(e).swallowed.Inc() },
		Lost: func(e redelivery.Lost) {
			labels := []string{valid(e.Subscription), string(e.Why)}
			if m.topic { // the event of a lost connection has no topic
				labels = []string{valid(e.Subscription), topicLabel(e.Topic), string(e.Why)}
			}
			m.losses.WithLabelValues(labels...).Inc()
		},
		Failed: func(e redelivery.Failed) {
			m.failed(valid(e.Subscription), strings.ReplaceAll(e.Operation, " ", "_")).Inc() // "attempt_log"
		},
	})
}

// ObserveWorker returns an option for worker.New and worker.NewBatch that adds the durations of handlers and the gauges
// of Workers. Any number of Workers may share it. A Worker's gauges also need Observe on its Consumer, and end when the
// Worker's Run returns or the Consumer is closed.
func (m *Metrics) ObserveWorker() worker.Option {
	return worker.WithObserver(worker.Observer{
		Handling: func(e worker.Handling) {
			if c := m.stored(e.Consumer); c != nil {
				c.handlers.Add(1)
			}
		},
		Handled: func(e worker.Handled) {
			if c := m.stored(e.Consumer); c != nil {
				c.handlers.Add(-1)
			}
			labels := []string{valid(e.Subscription)}
			if m.topic {
				labels = append(labels, topicLabel(e.Topic))
			}
			m.handlers.WithLabelValues(append(labels, string(e.Outcome))...).Observe(e.Duration.Seconds())
		},
		Running: func(e worker.Running) {
			switch c := m.stored(e.Consumer); {
			case c == nil:
			case e.Running:
				c.workers.Store(e.Worker, nil)
			default:
				c.workers.Delete(e.Worker)
			}
		},
	})
}

func (m *Metrics) delivered(e redelivery.Delivered) {
	if e.Cause == "" {
		return
	}
	s := m.series(e.Event)
	m.redelivered.WithLabelValues(s.labels(string(e.Cause))...).Inc()
	if !e.Due.IsZero() {
		m.lateness.WithLabelValues(s.labels(string(e.Cause))...).Observe(e.Lateness.Seconds())
	}
}

func (m *Metrics) settle(e redelivery.Settled) {
	s := m.consumer(e.Consumer).series(e.Topic)
	if e.Err != nil {
		m.failures.WithLabelValues(s.labels(operation(e.Outcome))...).Inc()
		return
	}
	o := s.outcomes[e.Outcome]
	o.settled.Inc()
	o.attempts.Observe(float64(e.Attempts))
	if e.Outcome == redelivery.DeadLettered {
		m.deadLetters.WithLabelValues(s.labels(string(e.Reason))...).Inc()
	}
}

// operation returns the name of the operation that failed when a message could not be settled.
func operation(o redelivery.Outcome) string {
	switch o {
	case redelivery.Acked, redelivery.Discarded:
		return "ack"
	case redelivery.Reconsumed:
		return "reconsume"
	case redelivery.DeadLettered:
		return "dead_letter"
	default:
		return "nack"
	}
}

// consumer keeps the series of a Consumer, so that no message needs a lookup by label values.
type consumer struct {
	*redelivery.Consumer
	m            *Metrics
	subscription string
	all          *series  // nil with WithTopic
	topics       sync.Map // with WithTopic: *series by topic

	handlers atomic.Int64 // number of messages that Workers' handlers are processing
	workers  sync.Map     // the running *worker.Workers
}

func (m *Metrics) newConsumer(c *redelivery.Consumer) *consumer {
	x := &consumer{Consumer: c, m: m, subscription: valid(c.Subscription())}
	if !m.topic {
		x.all = m.newSeries(x.subscription)
	}
	for _, operation := range []string{"receive", "count"} {
		m.failed(x.subscription, operation) // creates the series at 0, so that the first failure is an increase
	}
	return x
}

// failed returns the counter for failures of an operation that settles no message. The topic of such a failure is not
// known.
func (m *Metrics) failed(subscription, operation string) prometheus.Counter {
	if m.topic {
		return m.failures.WithLabelValues(subscription, "", operation)
	}
	return m.failures.WithLabelValues(subscription, operation)
}

// consumer returns the series of a Consumer. Close removes them from m.consumers. A call that ends after Close still
// counts.
func (m *Metrics) consumer(c *redelivery.Consumer) *consumer {
	if x := m.stored(c); x != nil {
		return x
	}
	return m.newConsumer(c)
}

// stored returns the stored series, or nil if the Consumer is closed or was made without Observe.
func (m *Metrics) stored(c *redelivery.Consumer) *consumer {
	if x := m.last.Load(); x != nil && x.Consumer == c {
		return x
	}
	if x, ok := m.consumers.Load(c); ok {
		found := x.(*consumer)
		m.last.Store(found)
		if _, ok := m.consumers.Load(c); !ok { // Closed may have cleared last before found was stored
			m.last.CompareAndSwap(found, nil)
		}
		return found
	}
	return nil
}

func (m *Metrics) series(e redelivery.Event) *series { return m.consumer(e.Consumer).series(e.Topic) }

// series returns the series of a topic.
func (c *consumer) series(topic string) *series {
	if c.all != nil {
		return c.all
	}
	if s, ok := c.topics.Load(topic); ok {
		return s.(*series)
	}
	s := c.m.newSeries(c.subscription, topicLabel(topic))
	c.topics.Store(topic, s)
	return s
}

// series are the counters of a subscription, or with WithTopic of one topic of a subscription.
type series struct {
	values             []string // of the label subscription and, with WithTopic, of the label topic
	outcomes           map[redelivery.Outcome]outcome
	swallowed, dropped prometheus.Counter
}

type outcome struct {
	settled  prometheus.Counter
	attempts prometheus.Observer
}

// The label values whose series exist before any event.
var (
	outcomes = []redelivery.Outcome{redelivery.Acked, redelivery.Nacked, redelivery.Snoozed, redelivery.TimedOut,
		redelivery.Reconsumed, redelivery.DeadLettered, redelivery.Discarded}
	causes = []redelivery.Cause{redelivery.CauseNack, redelivery.CauseTimeout, redelivery.CauseRetryTopic,
		redelivery.CauseReconnect}
	losses  = []redelivery.Loss{redelivery.LostConnection, redelivery.LostPartition, redelivery.LostConsumer}
	reasons = []redelivery.Reason{redelivery.ReasonMaxDeliveries, redelivery.ReasonPermanent,
		redelivery.ReasonCrashed, redelivery.ReasonExplicit, redelivery.ReasonTTL}
)

// newSeries creates all series whose labels are known, at 0, so that their first event is an increase.
func (m *Metrics) newSeries(values ...string) *series {
	s := &series{values: values, outcomes: map[redelivery.Outcome]outcome{},
		swallowed: m.swallowed.WithLabelValues(values...), dropped: m.dropped.WithLabelValues(values...)}
	for _, o := range outcomes {
		labels := s.labels(string(o))
		s.outcomes[o] = outcome{m.settled.WithLabelValues(labels...), m.attempts.WithLabelValues(labels...)}
	}
	for _, reason := range reasons {
		m.deadLetters.WithLabelValues(s.labels(string(reason))...)
	}
	for _, operation := range []string{"ack", "reconsume", "dead_letter"} {
		m.failures.WithLabelValues(s.labels(operation)...)
	}
	for _, why := range losses {
		m.losses.WithLabelValues(s.labels(string(why))...)
	}
	for _, cause := range causes {
		m.redelivered.WithLabelValues(s.labels(string(cause))...)
	}
	return s
}

// valid returns a name as the value of a label. A name in Pulsar may be invalid UTF-8, which makes Prometheus panic.
func valid(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// topicLabel returns the value of the label topic: the topic's name without the partition.
func topicLabel(topic string) string { return valid(topicname.Base(topic)) }

// labels returns the values of all labels. The last one is value.
func (s *series) labels(value string) []string {
	return append(slices.Clip(s.values), value)
}
