package main

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/history"
)

// result is what became of the messages of a run.
type result struct {
	faults  []time.Time // kills, or moves and deaths of brokers
	summary history.Summary
	excess  int // messages that were handled more often than they may be
	most    int // deliveries of one message
	dead    int
	took    string

	// Deliveries that the next one's count does not have:
	cut       int           // the process was killed in the handler
	forgotten int           // it was killed when the handler had returned, and before the failure was in the log
	twice     int           // another consumer had the message at the same time
	lost      time.Duration // how long before a fault a failure was, at most, that was forgotten

	early    int // deliveries of messages that were not due
	findings []history.Finding
}

// delivery is one of a message, and the failure that followed, which is nil if the handler did not return.
type delivery struct{ at, failed *history.Line }

// newFolder makes a folder for a history.
func newFolder() string {
	dir, err := os.MkdirTemp(*histories, "kill")
	check(err)
	return dir
}

// read checks what the processes noted, and counts it.
func (r *result) read(dir string) {
	c, messages := history.New(history.Rules{Durable: true, MaxDeliveries: maxDeliveries}), map[string][]delivery{}
	check(history.ReadFolder(dir, func(l *history.Line) {
		c.Add(l)
		all := messages[l.Message]
		switch l.Kind {
		case history.Delivered:
			messages[l.Message] = append(all, delivery{at: l})
		case history.Nacked:
			i := slices.IndexFunc(all, func(d delivery) bool { return d.at.Consumer == l.Consumer && d.failed == nil })
			all[i].failed = l
		default:
		}
	}))
	r.summary, r.findings = c.Finish()
	for _, all := range messages {
		r.most = max(r.most, len(all))
		if len(all) > maxDeliveries {
			r.excess++
		}
		for i := range max(0, len(all)-1) {
			r.compare(all[i], all[i+1].at)
		}
	}
}

// compare counts what became of a failure by the next delivery.
func (r *result) compare(last delivery, next *history.Line) {
	failed := last.failed
	if failed != nil && next.At > failed.At && next.At < failed.At+failed.Delay {
		r.early++
	}
	switch {
	case next.Count > last.at.Count:
	case failed == nil:
		r.cut++
	case failed.At > next.At:
		r.twice++
	default:
		r.forgotten++
		r.lost = max(r.lost, r.beforeFault(time.UnixMicro(failed.At)))
	}
}

// found counts the findings of a kind.
func (r *result) found(fault history.Fault) (n int) {
	for _, f := range r.findings {
		if f.Fault == fault {
			n++
		}
	}
	return n
}

// beforeFault returns how long it was from a failure to the next fault.
func (r *result) beforeFault(at time.Time) time.Duration {
	for _, k := range r.faults {
		if d := k.Sub(at); d > -50*time.Millisecond {
			return max(0, d)
		}
	}
	return 0
}

const columns = `| subscription | batched | client | faults | handled | cut off by a kill | forgotten | at most before a fault | with two at once | messages handled more than 4 times | handled at most | early | early though counted | not explained | dead letters | after |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|`

func (r *result) row(kind string, batched bool, client string) string {
	return fmt.Sprintf("| %s | %t | %s | %d | %d | %d | %d | %v | %d | %d | %d | %d | %d | %d | %d | %s |", kind, batched, client, len(r.faults), r.summary.Deliveries, r.cut,
		r.forgotten, r.lost.Round(time.Millisecond), r.twice, r.excess, r.most, r.early, r.found(history.Early), len(r.findings)-r.found(history.Early), r.dead, r.took)
}

// isGood reports whether the log kept what it promises.
func (r *result) isGood() bool { return r.dead == *messages && len(r.findings) == 0 }
