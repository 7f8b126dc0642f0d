package metrics

import "github.com/prometheus/client_golang/prometheus"

// state is what the gauges of a subscription are made of, over all of its Consumers here.
type state struct {
	waiting, buffered, oldest, handlers, paused, outage, full, blocked, unfinished float64
}

type gauge struct {
	desc *prometheus.Desc
	of   func(state) float64
}

func newGauges() []gauge {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"subscription"}, nil)
	}
	return []gauge{
		{desc("redelivery_waiting_messages", "Messages that wait to be handed out again."), func(s state) float64 { return s.waiting }},
		{desc("redelivery_buffered_bytes", "Size of the messages that are kept in memory."), func(s state) float64 { return s.buffered }},
		{desc("redelivery_oldest_waiting_seconds", "For how long the message has waited that waits longest."), func(s state) float64 { return s.oldest }},
		{desc("redelivery_handlers_active", "Messages that Workers' handlers have."), func(s state) float64 { return s.handlers }},
		{desc("redelivery_paused", "Workers that are paused."), func(s state) float64 { return s.paused }},
		{desc("redelivery_outage", "Workers that try one message at a time, since most failed."), func(s state) float64 { return s.outage }},
		{desc("redelivery_memory_limit_reached", "Workers of which too many messages wait for others of their keys."),
			func(s state) float64 { return s.full }},
		{desc("redelivery_blocked", "Consumers that the broker may send nothing, since too much is unacknowledged."),
			func(s state) float64 { return s.blocked }},
		{desc("redelivery_unfinished_messages", "Settled messages that come again after a restart, since their batches are not settled whole."),
			func(s state) float64 { return s.unfinished }},
	}
}

// collectGauges asks the Consumers that are not closed.
func (m *Metrics) collectGauges(ch chan<- prometheus.Metric) {
	states := map[string]state{}
	m.consumers.Range(func(_, value any) bool {
		c := value.(*consumer)
		stats, s := c.Stats(), states[c.subscription]
		s.waiting += float64(stats.Waiting)
		s.buffered += float64(stats.BufferedBytes)
		s.oldest = max(s.oldest, stats.OldestWaiting.Seconds())
		s.handlers += float64(c.handlers.Load())
		s.paused += float64(c.paused.Load())
		s.outage += float64(c.outage.Load())
		s.full += float64(c.full.Load())
		s.unfinished += float64(stats.Unfinished)
		if stats.Blocked {
			s.blocked++
		}
		states[c.subscription] = s
		return true
	})
	for subscription, s := range states {
		for _, g := range m.gauges {
			ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.of(s), subscription)
		}
	}
}
