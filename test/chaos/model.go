package main

import (
	"fmt"
	"sync"
	"time"
)

// event is what a consumer tells of a message.
type event struct {
	What    string
	Message int
	At      time.Time     // delivered by one that acknowledges cumulatively: when
	Late    time.Duration // redelivered: after it was due; negative if it was early
	Delay   time.Duration // failed: until it is due
}

const (
	delivered   = "delivered"   // and no time was set for it
	redelivered = "redelivered" // when it was due by what this Consumer was told
	failed      = "failed"      // it is to come again
	refused     = "refused"     // reconsuming it was an error
	settling    = "settling"    // about to be acknowledged
	logFailed   = "log failed"  // the log of attempts
	settled     = "settled"     // acknowledged without an error
)

// result is what became of all messages of a trial.
type result struct {
	processed, duplicates, lost, early int
	disorder                           int // first deliveries before that of the message published before
	stuck                              int // came only with another consumer, since the broker did not send them
	earliest, stall                    time.Duration
	examples                           []string
}

func (r *result) example(text string) {
	if len(r.examples) < 5 {
		r.examples = append(r.examples, text)
	}
}

type life struct {
	deliveries        int
	first             time.Time // event.At
	due               time.Time // by what the last Consumer that failed on it was told
	settling, settled bool
}

// model follows the life of each message. Events of one Consumer come in order; those of several do not.
type model struct {
	mu     sync.Mutex
	lives  []life
	apart  int       // work.apart
	healed time.Time // when the fault was over; zero before
	counts counts
	result result
}

// counts are how far the messages are.
type counts struct {
	delivered, settled int // messages
	failed, refused    int // events
	logFailures        int
}

func (c counts) String() string {
	return fmt.Sprintf("%d delivered, %d failures, %d reconsumes refused, %d settled", c.delivered, c.failed, c.refused, c.settled)
}

func (m *model) note(e event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := &m.lives[e.Message]
	switch e.What {
	case delivered, redelivered:
		if l.deliveries++; l.deliveries == 1 {
			m.counts.delivered++
		}
		if l.first.IsZero() || e.At.Before(l.first) { // events of several Consumers do not come in order
			l.first = e.At
		}
		if l.settled {
			m.result.duplicates++
		}
		if e.Late < 0 {
			m.result.early++
			m.result.earliest = max(m.result.earliest, -e.Late)
			m.result.example(fmt.Sprintf("message %d early by %v", e.Message, -e.Late))
		}
		if !m.healed.IsZero() && !l.due.IsZero() {
			m.result.stall = max(m.result.stall, min(time.Since(l.due), time.Since(m.healed)))
		}
		l.due = time.Time{}
	case failed:
		m.counts.failed++
		l.due = time.Now().Add(e.Delay)
	case refused:
		m.counts.refused++
	case logFailed:
		m.counts.logFailures++
	case settling:
		l.settling = true
	case settled:
		if !l.settled {
			m.counts.settled++
		}
		l.settled = true
	}
}

// heal notes that the fault is over.
func (m *model) heal() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.healed = time.Now()
}

// stuck notes that the broker does not send so many messages. Another consumer gets them, to which those that the last one had
// count as new.
func (m *model) stuck(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.result.stuck = n
}

func (m *model) progress() counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts
}

// settledBeside counts the settled messages of all partitions but one.
func (m *model) settledBeside(partition int) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, l := range m.lives {
		if l.settled && i%m.apart != partition {
			n++
		}
	}
	return n
}

// finish counts once the broker has nothing left. A consumer that was killed may have acknowledged what it could not tell
// of any more.
func (m *model) finish() result {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.result
	for i, l := range m.lives {
		switch {
		case l.settled, l.settling:
			r.processed++
		default:
			r.lost++
			r.example(fmt.Sprintf("message %d lost after %d deliveries", i, l.deliveries))
		}
		if before := i - m.apart; before >= 0 && !l.first.IsZero() && l.first.Before(m.lives[before].first) {
			r.disorder++
			r.example(fmt.Sprintf("message %d %v before message %d", i, m.lives[before].first.Sub(l.first), before))
		}
	}
	return r
}
