package worker_test

import (
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

type certainty int

const (
	no certainty = iota
	maybe
	yes
)

func (p plan) retryAndLimit() (options []worker.Option) {
	if p.limited {
		options = append(options, worker.WithRateLimit(rate.NewLimiter(rate.Every(300*time.Millisecond), 2)))
	}
	if p.localRetries > 0 {
		options = append(options, worker.WithLocalRetries(p.localRetries, backoff.Fixed(localPause)))
	}
	return options
}

// findLocalRetries finds out after which attempts in seen a local retry must come, and after which it may come.
func (m *watched) findLocalRetries() {
	of := make([]delivered, len(m.messages))
	for n := range of {
		of[n] = delivered{0, true, m.messages[n].at}
	}
	for i := range m.seen {
		a := &m.seen[i]
		d := &of[a.msg]
		// attempt a may belong to another delivery than the previous attempt
		if m.reconnects(d.began, a.began) || d.retries > 0 && m.hadOutage(d.began, a.began) {
			d.sure = false
		}
		d.began = a.began
		a.local = m.localRetryAfter(*a, d)
	}
}

// delivered is what is known about a message's newest delivery.
type delivered struct {
	retries int           // its local retries
	sure    bool          // retries is certain, and this is the newest delivery
	began   time.Duration // when the previous attempt began; if there is none, when the message was published
}

// localRetryAfter reports whether a local retry follows attempt a, and updates d.
func (m *watched) localRetryAfter(a attempt, d *delivered) certainty {
	stop, _ := m.stop()
	switch a.does.returns {
	case fails, panics, exits:
		switch {
		case m.localRetries == 0 || a.ended < 0:
			return no
		case a.ended >= m.done && !a.whole:
			return no
		case !d.sure, m.mayBeKept(a), m.mayBeProbe(a), m.mayLosePlace(a),
			a.whole,        // the batch may be halved
			a.ended > stop: // the Worker may not know yet that the Consumer is lost
			d.sure = false
			return maybe
		case d.retries < m.localRetries:
			d.retries++
			return yes
		}
		d.retries, d.sure = 0, true
	default: // no local retry follows: the next attempt is of another delivery, except in an outage
		if !m.mayBeKept(a) {
			d.retries, d.sure = 0, true
		} else if d.retries > 0 {
			d.sure = false
		}
	}
	return no
}

// mayNotCount reports whether a failed attempt possibly does not count.
func (m *watched) mayNotCount(a attempt) bool { return a.local == maybe || m.mayBeKept(a) }

// mayBeProbe reports whether an attempt began in an outage, and so may be a probe. No local retry follows a probe, even
// if the outage has ended by then.
func (m *watched) mayBeProbe(a attempt) bool {
	return m.hadOutage(a.began, a.began)
}

// hadOutage reports whether there was an outage between two times. In an outage, messages that are put aside may go
// back to the broker.
func (m *watched) hadOutage(from, to time.Duration) bool {
	return slices.ContainsFunc(m.outages, func(o span) bool { return o.from <= to && (o.to >= from || o.to < 0) })
}

// mayLosePlace reports whether a handler ran for so long that another handler may have its place. Then no local retry
// follows.
func (m *watched) mayLosePlace(a attempt) bool {
	return a.ended-a.began >= m.stuckLimit && m.timeout+m.ackTimeout > 0
}

// reconnects reports whether the Consumer's messages came again between two times.
func (m *watched) reconnects(from, to time.Duration) bool {
	return slices.ContainsFunc(m.events, func(e event) bool { return e.what == "reconnect" && e.at >= from && e.at <= to })
}

// checkLocal checks that the local retry after an attempt comes when it is due.
func (m *watched) checkLocal(a attempt, later []attempt) {
	due := a.ended + localPause
	if m.happened("acks fail", due) { // a message that succeeded may come again before it is acknowledged
		return
	}
	exactly := !m.limited && m.batch == (worker.Batch{}) && m.outage.window == 0
	switch {
	case len(later) == 0:
		if exactly && due < m.done && !m.reconnects(a.began, due) && !m.happened("give up", due) {
			m.errorf("message %d failed at %v, and no local retry followed", a.msg, a.ended)
		}
	case m.reconnects(a.began, later[0].began):
	case later[0].began < due || exactly && later[0].began > due:
		m.errorf("message %d was handled at %v, its local retry was due at %v", a.msg, later[0].began, due)
	}
}
