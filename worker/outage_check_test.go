package worker_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/virtual"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// runOther runs another Worker, whose handlers all succeed, for the time d.
func (m *watchedDowntime) runOther(broker *virtual.Broker, opts pulsar.ConsumerOptions, options []redelivery.Option, d time.Duration) {
	consumer, err := redelivery.Subscribe(broker, opts, options...)
	if err != nil {
		panic(err)
	}
	defer consumer.Close()
	var workerOptions []worker.Option
	if m.keyOrder {
		workerOptions = append(workerOptions, worker.WithKeyOrder())
	}
	w, err := worker.New(consumer, func(_ context.Context, msg pulsar.Message) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		q := query{of: 1, began: time.Since(m.began), ended: time.Since(m.began), byOther: true}
		_, _ = fmt.Sscan(string(msg.Payload()), &q.msg)
		m.queries = append(m.queries, q)
		return nil
	}, append(workerOptions, worker.WithLogger(quiet))...)
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	if err := w.Run(ctx); err != nil {
		panic(err)
	}
}

// checkOrder checks that no message of a key was handled before all earlier ones were done.
func (m *watchedDowntime) checkOrder(broker *virtual.Broker) {
	if !m.keyOrder || len(m.otherRuns) > 0 && (m.kind == pulsar.Shared || len(m.reconnects) > 0) || m.kind == pulsar.Shared && len(m.reconnects) > 0 {
		return
	}
	last, timedOut := map[string]int{}, map[string]bool{}
	for _, msg := range m.messages {
		// If a handler takes that long, the ack timeout of its message is over first.
		timedOut[msg.key] = timedOut[msg.key] || msg.takes >= 15*time.Second
	}
	for _, q := range m.queries {
		key, entry := m.messages[q.msg].key, broker.Entry(fmt.Sprint(q.msg))
		if before, ok := last[key]; ok && key != "" && !timedOut[key] && before > entry {
			m.errorf("entry %d of key %s was handled at %v, after entry %d", entry, key, q.began, before)
		}
		last[key] = entry
	}
}

func (m *watchedDowntime) check(broker *virtual.Broker) {
	m.checkTries()
	m.checkOrder(broker)
	dead := map[string]bool{}
	for _, letter := range broker.Published(deadLetters) {
		if dead[string(letter.Payload)] {
			m.errorf("message %s is a dead letter twice", letter.Payload)
		}
		dead[string(letter.Payload)] = true
	}
	failures := map[int]int{} // failures that may count: those outside of outages and at their beginnings and ends, and some inside
	for _, q := range m.queries {
		if q.failed && !slices.ContainsFunc(m.outages, func(o span) bool { return q.ended > o.from && (q.ended < o.to || o.to < 0) }) {
			failures[q.msg]++
		}
	}
	for _, o := range m.outages { // in an outage, the third failure of a message and all later ones count
		tried := map[int]int{}
		for _, q := range m.queries {
			if q.failed && q.ended > o.from && (q.ended < o.to || o.to < 0) {
				tried[q.msg]++
				if tried[q.msg] > 2 {
					failures[q.msg]++
				}
			}
		}
	}
	acked := broker.Acked("orders")
	for n, msg := range m.messages {
		if payload := fmt.Sprint(n); dead[payload] && !msg.permanent && msg.takes < 15*time.Second && failures[n] < int(m.maxDeliveries) {
			m.errorf("message %d is a dead letter after only %d failures that may count", n, failures[n])
		} else if m.settled() && !dead[payload] && (!msg.poison || m.maxDeliveries > 0) && !slices.Contains(acked, payload) && (!msg.permanent || m.maxDeliveries > 0) &&
			!(m.keyOrder && m.maxDeliveries == 0) { // there a message with a permanent error blocks its key
			m.errorf("message %d is left", n)
		}
	}
}

// settled reports whether everything worked for so long before the end that no message should be left.
func (m *watchedDowntime) settled() bool {
	const long = 40 * time.Second
	for _, s := range append(m.down, m.paused...) {
		if s.to+long > m.done {
			return false
		}
	}
	return m.done > long+20*time.Second
}

// checkTries checks that in an outage one message at a time was tried, each after a pause, and that the outage ended
// with a success.
func (m *watchedDowntime) checkTries() {
	for _, o := range m.outages {
		last, success := o.from, o.to < 0
		end := o.to
		if end < 0 {
			end = m.done + time.Hour
		}
		for _, q := range m.queries { // in the order in which they ended
			success = success || !q.failed && !q.byOther && !m.messages[q.msg].permanent && q.ended == o.to
			if q.began <= o.from || q.began >= end || q.byOther || q.ended-q.began >= 15*time.Second { // after 15 seconds other messages are tried, too
				continue
			}
			if q.began < last+tryPause || q.of > 1 {
				m.errorf("in the outage from %v to %v, %d messages were tried at %v; the pause began at %v", o.from, o.to, q.of, q.began, last)
			}
			last = q.ended
		}
		if !success {
			m.errorf("the outage from %v ended at %v without a success", o.from, o.to)
		}
	}
}
