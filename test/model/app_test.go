package model

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
)

// act makes one step of the application.
func (r *modelRun) act() {
	held := r.all(func(m *modelExpected) bool { return m.stand == modelHeld && m.settling == 0 })
	n := r.rng.IntN(100)
	if r.cfg.UpTo > 0 && n >= 45 && n < 87 && n%4 > 0 { // leaves most messages to the method upTo
		n = 0
	}
	if len(held) == 0 && n < 85 {
		n = 0
	}
	if n < 45 && len(held) >= r.cfg.Hands {
		n = 45 + r.rng.IntN(30)
	}
	m := r.one(held)
	switch {
	case n < 45:
		if r.taking() < r.cfg.Workers {
			r.take(r.patience())
		}
	case n < 65:
		msg := r.some(m)
		r.call(func() { r.ack(m, msg, "Ack") }, m)
	case n < 75:
		r.nack(m)
	case n < 79:
		r.ackList()
	case n < 83:
		if r.cfg.Cumulative {
			r.ackCumulative()
		}
	case n < 87: // a waiting or settled message may be acknowledged, too
		m := r.one(r.all(func(m *modelExpected) bool { return m.msg != nil && m.stand != modelHeld }))
		msg := r.some(m)
		r.call(func() { r.ack(m, msg, "Ack of a waiting or settled message") }, m)
	case n < 91:
		r.nackInVain()
	case n < 94:
		r.inProgress(m)
	case n < 96:
		go r.c.Stats()
	case n < 97:
		if r.cfg.Seeks {
			r.seek()
		}
	}
}

func (r *modelRun) taking() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.takes
}

// all returns the messages for which ok is true, and none during a seek.
func (r *modelRun) all(ok func(*modelExpected) bool) (all []*modelExpected) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seeking {
		return nil
	}
	for _, m := range r.order {
		if r.expire(m); ok(m) && !m.either {
			all = append(all, m)
		}
	}
	return all
}

func (r *modelRun) one(of []*modelExpected) *modelExpected {
	if len(of) == 0 {
		return nil
	}
	if r.rng.IntN(3) == 0 {
		return of[0]
	}
	return of[r.rng.IntN(len(of))]
}

// some returns the last delivery of a message, or an earlier one. An acknowledgement of any delivery settles the
// message.
func (r *modelRun) some(m *modelExpected) pulsar.Message {
	if m == nil {
		return nil
	}
	if len(m.old) > 0 && r.rng.IntN(3) == 0 {
		return m.old[r.rng.IntN(len(m.old))]
	}
	return m.msg
}

// call calls f, which settles messages, in a new goroutine. It does nothing without messages.
func (r *modelRun) call(f func(), messages ...*modelExpected) {
	if len(messages) == 0 || slices.Contains(messages, nil) {
		return
	}
	r.mu.Lock()
	r.begin(messages...)
	r.mu.Unlock()
	go f()
}

// done records that a call has ended.
func (r *modelRun) done() {
	r.mu.Lock()
	r.calls--
	r.mu.Unlock()
	r.w.nudge()
}

// allowed fails the run if a call that settles messages must not return err.
func (r *modelRun) allowed(what string, err error) {
	switch {
	case err == nil, r.isClosed():
	case isForgotten(err):
	case r.cfg.Response && (errors.Is(err, errModelAck) || errors.Is(err, errModelConnection)):
	default:
		r.w.fail("%v: %v", what, err)
	}
}

func (r *modelRun) nack(m *modelExpected) {
	if m == nil || r.cfg.Faultless {
		return
	}
	r.nackBy(m, r.rng.IntN(4), time.Duration(r.rng.Int64N(int64(3*time.Second+3*r.cfg.Pace)))-500*time.Millisecond)
}

// nackNow nacks a message by the policy.
func (r *modelRun) nackNow(m *modelExpected) { r.nackBy(m, 2, 0) }

func (r *modelRun) nackBy(m *modelExpected, kind int, delay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if kind > 0 {
		delay = r.delay(m.count)
	}
	r.w.note("nacks %v of count %d for %v", m, m.count, delay)
	r.calls++
	m.stand, m.waits, m.due = modelWaits, time.Now(), time.Now().Add(max(0, delay))
	m.count++
	m.nacking = true
	msg := m.msg
	go func() {
		defer r.done()
		defer func() {
			r.mu.Lock()
			m.nacking = false
			r.mu.Unlock()
		}()
		switch kind {
		case 0:
			if err := r.c.NackWithDelay(msg, delay); err != nil && !isForgotten(err) && !(r.isClosed() && errors.Is(err, redelivery.ErrClosed)) {
				r.w.fail("NackWithDelay: %v", err)
			}
		case 1:
			r.c.NackID(msg.ID())
		default:
			r.c.Nack(msg)
		}
	}()
}

// nackInVain makes a nack that must have no effect: of a message that the application does not have, or of an earlier
// delivery.
func (r *modelRun) nackInVain() {
	m := r.one(r.all(func(m *modelExpected) bool {
		return m.settling == 0 && !m.nacking && !m.unsure && (len(m.old) > 0 || m.msg != nil && m.stand != modelHeld)
	}))
	if m == nil {
		return
	}
	msg := m.msg
	if len(m.old) > 0 && (m.stand == modelHeld || r.rng.IntN(2) == 0) {
		msg = m.old[r.rng.IntN(len(m.old))]
	}
	r.w.note("nacks an earlier delivery of %v", m)
	r.mu.Lock()
	r.calls++
	r.mu.Unlock()
	go func() {
		defer r.done()
		r.c.Nack(msg)
	}()
}

func (r *modelRun) inProgress(m *modelExpected) {
	if r.cfg.Timeout == 0 {
		return
	}
	if m == nil || r.rng.IntN(3) == 0 {
		m = r.one(r.all(func(m *modelExpected) bool { return m.msg != nil && m.settling == 0 }))
	}
	if m == nil || m.unsure || m.deadline.Equal(time.Now()) {
		return
	}
	held := m.stand == modelHeld
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.nacking { // while a policy runs, the message may be held or waiting
		return
	}
	r.calls++
	go func() {
		defer r.done()
		err := r.c.InProgress(m.msg)
		closed := r.isClosed() && errors.Is(err, redelivery.ErrClosed)
		if !closed && (held != (err == nil) || err != nil && !errors.Is(err, redelivery.ErrNotInFlight)) {
			r.w.fail("InProgress of %v: %v", m, err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if held {
			m.deadline = time.Now().Add(r.cfg.Timeout + r.delay(m.count))
		}
	}()
}

// isForgotten reports whether err means that the Consumer has forgotten a message. To request such a message, it needs
// an id of pulsar-client-go, and it refuses the model's ids.
func isForgotten(err error) bool {
	return strings.Contains(err.Error(), "want the id of a message of pulsar-client-go")
}
