package otelredelivery

import (
	"context"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// state has the values of a subscription's gauges. Most are sums over its Consumers in this process. oldest is the
// maximum. The values of logs of attempts are maxima, too, since several Consumers may follow one log.
type state struct {
	waiting, ready, buffered, blocked, unfinished     int64
	oldest                                            float64
	handlers, stuck, keyWaiting, paused, outage, full int64 // of Workers
	hasLog                                            bool
	attempts, suspects, lost                          int64   // of logs of attempts
	lag                                               float64 // of logs of attempts
}

func (s *state) add(c *consumer) {
	stats := c.Stats()
	s.waiting += int64(stats.Waiting)
	s.ready += int64(stats.Ready)
	s.buffered += stats.BufferedBytes
	s.oldest = max(s.oldest, stats.OldestWaiting.Seconds())
	s.unfinished += int64(stats.Unfinished)
	s.blocked += number(stats.Blocked)
	s.handlers += c.handlers.Load()
	c.workers.Range(func(key, _ any) bool {
		w := key.(*worker.Worker).Stats()
		s.stuck += int64(w.Stuck)
		s.keyWaiting += int64(w.Waiting)
		s.paused += number(w.Paused)
		s.outage += number(w.Outage)
		s.full += number(w.Full)
		return true
	})
	if log := c.AttemptLog(); log != nil {
		x := log.Stats()
		s.hasLog = true
		s.attempts = max(s.attempts, int64(x.Records))
		s.suspects = max(s.suspects, int64(x.Suspects))
		s.lag = max(s.lag, x.Lag.Seconds())
		s.lost = max(s.lost, int64(x.Lost))
	}
}

func number(on bool) int64 {
	if on {
		return 1
	}
	return 0
}

// consumer has a Consumer and what its Workers do now.
type consumer struct {
	*redelivery.Consumer
	handlers atomic.Int64 // number of messages that Workers' handlers are processing
	workers  sync.Map     // the running *worker.Workers
}

// gauges reads the open Consumers each time that metrics are collected.
type gauges struct {
	consumers sync.Map // *consumer by *redelivery.Consumer
	all       []gauge
}

type gauge struct {
	metric.Observable
	observe func(metric.Observer, state, metric.ObserveOption)
	ofLog   bool // exported only for subscriptions that have a log of attempts
}

func (g *gauges) register(meter metric.Meter) (err error) {
	count := func(name, unit, about string, of func(state) int64, ofLog bool) {
		i, e := meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(about))
		err = first(err, e)
		g.all = append(g.all, gauge{i,
			func(o metric.Observer, s state, a metric.ObserveOption) { o.ObserveInt64(i, of(s), a) }, ofLog})
	}
	seconds := func(name, about string, of func(state) float64, ofLog bool) {
		i, e := meter.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(about))
		err = first(err, e)
		g.all = append(g.all, gauge{i,
			func(o metric.Observer, s state, a metric.ObserveOption) { o.ObserveFloat64(i, of(s), a) }, ofLog})
	}
	count("redelivery.waiting_messages", "{message}", "Messages that wait to be handed out again.",
		func(s state) int64 { return s.waiting }, false)
	count("redelivery.ready_messages", "{message}", "Waiting messages whose delay is over.",
		func(s state) int64 { return s.ready }, false)
	count("redelivery.buffered_bytes", "By", "Size of the messages that are kept in memory.",
		func(s state) int64 { return s.buffered }, false)
	seconds("redelivery.oldest_waiting_seconds", "How long the longest-waiting message has waited.",
		func(s state) float64 { return s.oldest }, false)
	count("redelivery.handlers_active", "{message}", "Messages that Workers' handlers have.",
		func(s state) int64 { return s.handlers }, false)
	count("redelivery.stuck_handlers", "{handler}",
		"Workers' handlers that did not return after their contexts had ended.",
		func(s state) int64 { return s.stuck }, false)
	count("redelivery.key_waiting_messages", "{message}",
		"Messages that wait in Workers for earlier messages of their keys, or for another try.",
		func(s state) int64 { return s.keyWaiting }, false)
	count("redelivery.paused", "{worker}", "Workers that are paused.", func(s state) int64 { return s.paused }, false)
	count("redelivery.outage", "{worker}", "Workers that try one message at a time, since most messages failed.",
		func(s state) int64 { return s.outage }, false)
	count("redelivery.memory_limit_reached", "{worker}",
		"Workers that take no message, because too many messages wait for earlier ones of their keys.",
		func(s state) int64 { return s.full }, false)
	count("redelivery.blocked", "{consumer}",
		"Consumers to which the broker may have stopped sending, because too many messages are unacknowledged.",
		func(s state) int64 { return s.blocked }, false)
	count("redelivery.unfinished_messages", "{message}",
		"Settled messages of partly settled batches. They may come again after a restart.",
		func(s state) int64 { return s.unfinished }, false)
	count("redelivery.attempt_log_records", "{message}", "Messages in the log of attempts.",
		func(s state) int64 { return s.attempts }, true)
	count("redelivery.attempt_log_suspects", "{message}",
		"Messages that crashed a process and have come to another one since.",
		func(s state) int64 { return s.suspects }, true)
	seconds("redelivery.attempt_log_lag_seconds", "Age of the oldest change not yet read back from the log.",
		func(s state) float64 { return s.lag }, true)
	count("redelivery.attempt_log_lost_sessions", "{consumer}",
		"Consumers that were found to have ended without closing.",
		func(s state) int64 { return s.lost }, true)
	if err != nil {
		return err
	}
	var instruments []metric.Observable
	for _, x := range g.all {
		instruments = append(instruments, x.Observable)
	}
	_, err = meter.RegisterCallback(g.collect, instruments...)
	return err
}

func first(err, next error) error {
	if err != nil {
		return err
	}
	return next
}

func (g *gauges) collect(_ context.Context, o metric.Observer) error {
	states := map[string]*state{}
	g.consumers.Range(func(_, value any) bool {
		c := value.(*consumer)
		s := states[c.Subscription()]
		if s == nil {
			s = &state{}
			states[c.Subscription()] = s
		}
		s.add(c)
		return true
	})
	for subscription, s := range states {
		attrs := metric.WithAttributes(semconv.MessagingSystemPulsar,
			semconv.MessagingDestinationSubscriptionName(valid(subscription)))
		for _, x := range g.all {
			if !x.ofLog || s.hasLog {
				x.observe(o, *s, attrs)
			}
		}
	}
	return nil
}
