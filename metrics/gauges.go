package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pulsar-redelivery/redelivery/worker"
)

// state has the values of a subscription's gauges. Most are sums over its Consumers in this process. oldest is the
// maximum. The values of logs of attempts are maxima, too, since several Consumers may follow one log.
type state struct {
	waiting, ready, buffered, oldest, blocked, unfinished float64
	handlers, stuck, keyWaiting, paused, outage, full     float64 // of Workers
	hasLog                                                bool
	attempts, suspects, lag, lost                         float64 // of logs of attempts
}

type gauge struct {
	desc  *prometheus.Desc
	of    func(state) float64
	ofLog bool // exported only for subscriptions that have a log of attempts
}

func newGauges() []gauge {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"subscription"}, nil)
	}
	return []gauge{
		{desc("redelivery_waiting_messages", "Messages that wait to be handed out again."),
			func(s state) float64 { return s.waiting }, false},
		{desc("redelivery_ready_messages", "Waiting messages whose delay is over."),
			func(s state) float64 { return s.ready }, false},
		{desc("redelivery_buffered_bytes", "Size of the messages that are kept in memory."),
			func(s state) float64 { return s.buffered }, false},
		{desc("redelivery_oldest_waiting_seconds", "How long the longest-waiting message has waited."),
			func(s state) float64 { return s.oldest }, false},
		{desc("redelivery_handlers_active", "Messages that Workers' handlers have."),
			func(s state) float64 { return s.handlers }, false},
		{desc("redelivery_stuck_handlers", "Workers' handlers that did not return after their contexts had ended."),
			func(s state) float64 { return s.stuck }, false},
		{desc("redelivery_key_waiting_messages",
			"Messages that wait in Workers for earlier messages of their keys, or for another try."),
			func(s state) float64 { return s.keyWaiting }, false},
		{desc("redelivery_paused", "Workers that are paused."), func(s state) float64 { return s.paused }, false},
		{desc("redelivery_outage", "Workers that try one message at a time, since most messages failed."),
			func(s state) float64 { return s.outage }, false},
		{desc("redelivery_memory_limit_reached",
			"Workers that take no message, because too many messages wait for earlier ones of their keys."),
			func(s state) float64 { return s.full }, false},
		{desc("redelivery_blocked", "Consumers to which the broker may have stopped sending, because too many "+
			"messages are unacknowledged."),
			func(s state) float64 { return s.blocked }, false},
		{desc("redelivery_unfinished_messages",
			"Settled messages of partly settled batches. They may come again after a restart."),
			func(s state) float64 { return s.unfinished }, false},
		{desc("redelivery_attempt_log_records", "Messages in the log of attempts."),
			func(s state) float64 { return s.attempts }, true},
		{desc("redelivery_attempt_log_suspects", "Messages that crashed a process and have come to another one since."),
			func(s state) float64 { return s.suspects }, true},
		{desc("redelivery_attempt_log_lag_seconds", "Age of the oldest change not yet read back from the log."),
			func(s state) float64 { return s.lag }, true},
		{desc("redelivery_attempt_log_lost_sessions", "Consumers that were found to have ended without closing."),
			func(s state) float64 { return s.lost }, true},
	}
}

func (s *state) addWorker(w worker.Stats) {
	s.stuck += float64(w.Stuck)
	s.keyWaiting += float64(w.Waiting)
	s.paused += number(w.Paused)
	s.outage += number(w.Outage)
	s.full += number(w.Full)
}

func number(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

// collectGauges reads the gauges from the Consumers that are not closed.
func (m *Metrics) collectGauges(ch chan<- prometheus.Metric) {
	states := map[string]state{}
	m.consumers.Range(func(_, value any) bool {
		c := value.(*consumer)
		stats, s := c.Stats(), states[c.subscription]
		s.waiting += float64(stats.Waiting)
		s.ready += float64(stats.Ready)
		s.buffered += float64(stats.BufferedBytes)
		s.oldest = max(s.oldest, stats.OldestWaiting.Seconds())
		s.handlers += float64(c.handlers.Load())
		c.workers.Range(func(key, _ any) bool {
			s.addWorker(key.(*worker.Worker).Stats())
			return true
		})
		s.unfinished += float64(stats.Unfinished)
		s.blocked += number(stats.Blocked)
		if log := c.AttemptLog(); log != nil {
			x := log.Stats()
			s.hasLog = true
			s.attempts = max(s.attempts, float64(x.Records))
			s.suspects = max(s.suspects, float64(x.Suspects))
			s.lag = max(s.lag, x.Lag.Seconds())
			s.lost = max(s.lost, float64(x.Lost))
		}
		states[c.subscription] = s
		return true
	})
	for subscription, s := range states {
		for _, g := range m.gauges {
			if g.ofLog && !s.hasLog {
				continue
			}
			ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.of(s), subscription)
		}
	}
}
