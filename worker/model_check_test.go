package worker_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/virtual"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// checkBatch checks that a batch ended at its limits.
func (m *watched) checkBatch(msgs []pulsar.Message, began time.Duration) {
	most, bytes := m.batch.MaxMessages, 0
	if most == 0 {
		most = 100
	}
	for i, msg := range msgs {
		bytes += len(msg.Payload())
		if i < len(msgs)-1 && m.batch.MaxBytes > 0 && int64(bytes) >= m.batch.MaxBytes {
			m.errorf("a batch of %d messages reached %d bytes, its limit or more, with the first %d of them", len(msgs), bytes, i+1)
		}
	}
	if len(msgs) > most {
		m.errorf("a batch has %d messages, want %d at most", len(msgs), most)
	}
}

// stop returns when the Worker stops taking messages, and whether that is because the Consumer is lost.
func (m *watched) stop() (at time.Duration, lost bool) {
	for _, e := range m.events {
		if e.what == "give up" && e.at < m.done {
			return e.at, true
		}
	}
	return m.done, false
}

// happened reports whether an event of a kind happened by a time.
func (m *watched) happened(what string, until time.Duration) bool {
	return slices.ContainsFunc(m.events, func(e event) bool { return e.what == what && e.at <= until })
}

// check checks all events until Run returned.
func (m *watched) check(w *worker.Worker, broker *virtual.Broker, returned time.Duration, runErr error) {
	active := m.look()
	stop, lost := m.stop()
	if returned < stop || returned > m.done+m.drain+5*time.Second {
		m.errorf("the Worker stopped taking messages at %v, Run's context ended at %v, Run returned at %v: %v", stop, m.done, returned, runErr)
	}
	isLost := runErr != nil && strings.Contains(runErr.Error(), "the consumer is lost")
	if isLost && !lost || lost && !isLost && returned < m.done { // if all slots are busy, no slot notices the loss
		m.errorf("lost: %v, but Run's error: %v", lost, runErr)
	}
	for n, msg := range m.messages {
		m.checkMessage(n, msg, broker, returned, runErr)
	}
	m.checkOrder(broker, returned)
	m.checkEnd(broker, returned)
	paused := time.Duration(-1)
	for _, e := range append(m.events, event{returned, "resume"}) {
		switch {
		case e.what == "pause" && paused < 0:
			paused = e.at
		case e.what == "resume" && paused >= 0:
			waited := 0 // the one call that was waiting for the rate limit when the pause began
			for _, a := range m.seen {
				if a.began > paused && a.began < e.at && !m.mayComeFromSlot(a) {
					if m.limited && (waited == 0 || waited == a.call) {
						waited = a.call
						continue
					}
					m.errorf("message %d was handled at %v, paused from %v to %v", a.msg, a.began, paused, e.at)
				}
			}
			paused = -1
		}
	}
	if n := w.Stats().InFlight; n < active || n > active && m.batch == (worker.Batch{}) {
		m.errorf("%d in flight, %d handlers at work", n, active)
	}
}

func (m *watched) checkMessage(n int, msg planned, broker *virtual.Broker, returned time.Duration, runErr error) {
	stop, lost := m.stop()
	var of []attempt
	for _, a := range m.seen {
		if a.msg == n {
			of = append(of, a)
		}
	}
	acked := false
	for _, payload := range broker.Acked("orders") {
		acked = acked || payload == fmt.Sprint(n)
	}
	dead, reason := 0, ""
	for _, letter := range broker.Published(deadLetters) {
		if string(letter.Payload) == fmt.Sprint(n) {
			dead++
			reason = letter.Properties["EXCEPTION_MESSAGE"]
		}
	}
	badAcks, badSends := m.happened("acks fail", returned), m.happened("sends fail", returned)
	if dead > 0 && m.maxDeliveries == 0 {
		m.errorf("message %d: a dead letter without a topic for it", n)
	}
	if len(of) == 0 {
		if acked || dead > 0 {
			m.errorf("message %d was not handled, but acked %v, dead letters %d", n, acked, dead)
		}
		return
	}
	timedOut := false                         // the message's ack timeout was over while its handler was running
	counted, byBroker := uint32(0), uint32(0) // the broker may count snoozes
	unsure := uint32(0)                       // how many of counted may not count
	for i, a := range of {
		switch {
		case a.halved, a.local == yes:
		case a.does.returns != snoozes:
			counted++
			if m.mayNotCount(a) {
				unsure++
			}
		case m.brokerCounts(msg):
			byBroker++
		}
		if a.began > stop && !(lost && m.keyOrder && a.began <= m.done) { // at the memory limit no slot receives and notices the loss
			m.errorf("message %d was handled at %v, though the Worker stopped taking messages at %v", n, a.began, stop)
		}
		ended := a.ended
		if ended < 0 {
			ended = returned
		}
		timedOut = timedOut || m.hadTimedOut(a, ended)
		m.checkContext(a)
		if a.local == yes && !timedOut {
			m.checkLocal(a, of[i+1:])
		}
		if i == len(of)-1 {
			break
		}
		next := of[i+1]
		if timedOut || a.halved || a.local == yes || m.mayNotCount(a) {
			continue
		}
		if m.expired(a) && a.does.returns != snoozes && m.maxDeliveries > 0 && !badAcks && !badSends {
			m.errorf("message %d was handled at %v, though it was too old at %v", n, next.began, a.ended)
		}
		var delay time.Duration
		switch a.does.returns {
		case succeeds:
			if !badAcks {
				m.errorf("message %d was handled after it succeeded, at %v", n, next.began)
			}
			continue
		case permanent:
			if m.maxDeliveries > 0 && !badAcks && !badSends {
				m.errorf("message %d was handled after a permanent error, at %v", n, next.began)
			}
			delay = nackDelay
		case retryAfter:
			delay = retryDelay
			if badSends { // a dead letter that could not be published is tried again after the Consumer's delay
				delay = nackDelay
			}
		case snoozes:
			delay = retryDelay
		default:
			delay = nackDelay
		}
		if m.maxDeliveries > 0 && counted-unsure >= m.maxDeliveries && !badSends && !badAcks {
			m.errorf("message %d was handled %d times, too often: %+v", n, i+2, of)
		}
		if next.began < ended+delay && !badAcks {
			m.errorf("message %d was handled at %v, %v after it failed, want %v", n, next.began, next.began-ended, delay)
		}
	}
	if dead > 1 && !badAcks {
		m.errorf("message %d: %d dead letters", n, dead)
	}
	last := of[len(of)-1]
	named := runErr != nil && strings.Contains(runErr.Error(), fmt.Sprintf("message 1:%d:", broker.Entry(fmt.Sprint(n))))
	named = named || runErr != nil && strings.Contains(runErr.Error(), "more") // messages of a batch are not all named
	if last.ended < 0 {
		if !named || !lost && returned < stop+m.drain+5*time.Second {
			m.errorf("message %d is stuck, Run returned at %v: %v", n, returned, runErr)
		}
		return
	}
	endsWithDrain := last.ctxEnded < 0 && last.ended == m.done+m.drain // either may come first
	if timedOut || badAcks || badSends || endsWithDrain || m.happened("give up", returned) {
		return
	}
	if named && m.batch == (worker.Batch{}) {
		m.errorf("message %d is not stuck, but Run's error names it: %v", n, runErr)
	}
	want := last.reason
	wantAcked, wantDead := false, false
	switch last.does.returns {
	case succeeds:
		wantAcked = true
	case permanent:
		wantDead = m.maxDeliveries > 0
	case snoozes: // it waits
	case panics:
		want = "panic: " + want
		fallthrough
	default:
		if last.does.returns == exits {
			want = "the handler called runtime.Goexit"
		}
		wantDead = m.maxDeliveries > 0 && !last.afterDrain && !last.halved && last.local != yes && (counted >= m.maxDeliveries || m.expired(last))
		if m.mayNotCount(last) || counted-unsure < m.maxDeliveries && !m.expired(last) { // both are right: a dead letter and none
			wantDead = wantDead && dead == 1
		}
		if m.expired(last) {
			want = fmt.Sprintf("older than %v: %s", m.maxAge, want)
		}
	}
	if n := counted + byBroker; byBroker > 0 && n >= m.maxDeliveries && dead == 1 && m.maxDeliveries > 0 && !last.afterDrain && !last.halved {
		wantDead = !wantAcked
		if last.does.returns == snoozes { // the Consumer made the dead letter, without another call of the handler
			want = fmt.Sprintf("delivered %d times and not acknowledged", m.maxDeliveries)
		}
	}
	if acked != (wantAcked || wantDead) || (dead == 1) != wantDead || wantDead && reason != want {
		m.errorf("message %d: handled %d times, the last returned %v after the drain %v: acked %v, dead letters %d, reason %q, want %v %v %q",
			n, len(of), last.does.returns, last.afterDrain, acked, dead, reason, wantAcked, wantDead, want)
	}
}

// checkOrder checks that the messages of a key were handled one at a time, and none before an earlier one.
func (m *watched) checkOrder(broker *virtual.Broker, returned time.Duration) {
	if !m.keyOrder || m.happened("acks fail", returned) || m.anyTimedOut(returned) {
		return
	}
	last := map[string]attempt{} // by key
	for _, a := range m.seen {
		key := m.messages[a.msg].key
		before, ok := last[key]
		last[key] = a
		if !ok || key == "" {
			continue
		}
		if before.ended < 0 || before.ended > a.began {
			m.errorf("messages %d and %d of key %s were handled together at %v", before.msg, a.msg, key, a.began)
		}
		if broker.Entry(fmt.Sprint(before.msg)) > broker.Entry(fmt.Sprint(a.msg)) {
			m.errorf("message %d of key %s was handled at %v, before %d", before.msg, key, before.began, a.msg)
		}
	}
}

// checkEnd checks that no message was forgotten: if nothing happened for the time quietTime, no message is left.
func (m *watched) checkEnd(broker *virtual.Broker, returned time.Duration) {
	busy, paused := time.Duration(0), false
	for _, msg := range m.messages {
		busy = max(busy, msg.at)
	}
	for _, a := range m.seen {
		if a.ended < 0 {
			return
		}
		busy = max(busy, a.ended)
	}
	for _, e := range m.events {
		busy = max(busy, e.at)
		paused = e.what == "pause" || paused && e.what != "resume"
	}
	if !paused && !m.happened("give up", returned) && !m.badAcks.Load() && !m.badSends.Load() && busy+m.quietTime() < m.done &&
		len(broker.Unacked()) > 0 {
		m.errorf("nothing happened from %v to %v, but %v is left", busy, m.done, broker.Unacked())
	}
}

// anyTimedOut reports whether the ack timeout of any attempt was over before its handler returned.
func (m *watched) anyTimedOut(returned time.Duration) bool {
	return slices.ContainsFunc(m.seen, func(a attempt) bool {
		if a.ended < 0 {
			a.ended = returned
		}
		return m.hadTimedOut(a, a.ended)
	})
}

// hadTimedOut reports whether the ack timeout of an attempt was over at a time.
func (m *watched) hadTimedOut(a attempt, at time.Duration) bool {
	return m.ackTimeout > 0 && at-a.began >= m.timeout+m.ackTimeout-m.ackTimeout/3
}

// expired reports whether a message was older than maxAge at the end of an attempt.
func (m *watched) expired(a attempt) bool {
	return m.maxAge > 0 && a.ended-m.messages[a.msg].at > m.maxAge
}

// checkContext checks when the context of a handler ended.
func (m *watched) checkContext(a attempt) {
	stop, lost := m.stop()
	if lost || !a.does.heeds || a.does.stuck || a.ended < 0 {
		return
	}
	end := stop + m.drain
	if m.timeout > 0 {
		end = min(end, a.began+m.timeout)
	}
	end = max(end, a.began)
	if a.ctxEnded >= 0 && a.ctxEnded != end || a.ctxEnded < 0 && end < a.ended {
		m.errorf("message %d, handled from %v to %v: its context ended at %v, want %v", a.msg, a.began, a.ended, a.ctxEnded, end)
	}
}

// look copies the attempts until now, and returns how many handlers are at work.
func (m *watched) look() (active int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = nil
	for _, a := range m.attempts {
		m.seen = append(m.seen, *a)
	}
	m.findLocalRetries()
	return m.active
}

// checkAfter checks that nothing is handled after Run returned.
func (m *watched) checkAfter(returned time.Duration) {
	m.look()
	for _, a := range m.seen {
		if a.began > returned {
			m.errorf("message %d was handled at %v, Run returned at %v", a.msg, a.began, returned)
		}
		if a.ended < 0 {
			m.errorf("message %d is being handled after all were released", a.msg)
		}
	}
}
