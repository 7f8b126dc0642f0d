package main

import (
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/history"
)

// result counts the events of a history, including those that a fault explains.
type result struct {
	Lost       int           `json:"lost"`       // messages never acknowledged, though the broker has none left
	Unfinished int           `json:"unfinished"` // messages that the broker still had when the run ended
	Early      int           `json:"early"`      // deliveries before their delay was over
	Earliest   time.Duration `json:"earliest"`   // by how much the earliest of them was early
	Doubles    int           `json:"doubles"`    // deliveries of messages whose ack had returned without an error
	// doubles and siblings whose ack the broker had confirmed
	Confirmed int `json:"confirmed"`
	// deliveries of acknowledged messages that never failed, while another message of their batch did
	Siblings int           `json:"siblings"`
	Counts   int           `json:"counts"` // deliveries whose redelivery count is not the number of earlier nacks
	Latest   time.Duration `json:"latest"` // the longest time from a message's due time until its delivery
}

// life is the history of a message.
type life struct {
	acked, confirmed, fails bool
	nacks                   int
	copies                  map[string]*history.Line
	asked                   map[int]*history.Line // by number of the retry: the first line that requested this retry
	retry                   int                   // the highest number of a delivered retry
}

// measure reads the history of a run. The Checker finds lost messages. measure counts the other events itself, since
// the Checker does not report events that a fault explains.
func measure(dir, workload string) (r result, err error) {
	checker, lives := history.New(history.Rules{Patience: 24 * time.Hour}), map[string]*life{}
	err = history.ReadFolder(dir, func(l *history.Line) {
		checker.Add(l)
		if l.Message == "" {
			return
		}
		m := lives[l.Message]
		if m == nil {
			m = &life{copies: map[string]*history.Line{}, asked: map[int]*history.Line{}}
			lives[l.Message] = m
		}
		switch l.Kind { //nolint:exhaustive // other kinds do not matter
		case history.Delivered:
			r.deliver(m, l, workload)
		case history.Nacked:
			m.fails, m.copies[l.Copy] = true, l
			m.nacks++
		case history.Reconsumed:
			m.fails = true
			if m.asked[m.retry+1] == nil {
				m.asked[m.retry+1] = l
			}
		case history.Acked:
			m.acked, m.confirmed = true, l.Confirmed
		}
	})
	summary, findings := checker.Finish()
	r.Unfinished = summary.Unfinished
	for _, f := range findings {
		if f.Fault == history.Lost {
			r.Lost++
		}
	}
	return r, err
}

func (r *result) deliver(m *life, l *history.Line, workload string) {
	due := int64(0)
	if f := m.copies[l.Copy]; f != nil {
		due = f.At + f.Delay
		delete(m.copies, l.Copy)
	}
	if f := m.asked[l.Retry]; f != nil && l.Retry > m.retry {
		// a retry's delay begins at its publish time, which has whole milliseconds
		due = f.At - f.At%1000 + f.Delay
	}
	if l.At < due {
		r.Early++
		r.Earliest = max(r.Earliest, time.Duration(due-l.At)*time.Microsecond)
	} else if due > 0 {
		r.Latest = max(r.Latest, time.Duration(l.At-due)*time.Microsecond)
	}
	if m.acked {
		if m.fails || workload != batch {
			r.Doubles++
		} else {
			r.Siblings++
		}
		if m.confirmed {
			r.Confirmed++
		}
	}
	if l.Retry == 0 && l.Count >= 0 && l.Count != m.nacks {
		r.Counts++
	}
	m.retry = max(m.retry, l.Retry)
}
