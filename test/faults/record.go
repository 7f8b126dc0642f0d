package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/history"
)

// record is one file of a trial's history, with the progress of its messages.
type record struct {
	*history.Writer
	failed      atomic.Int64
	refused     atomic.Int64
	logFailures atomic.Int64 // of the log of attempts

	mu                 sync.Mutex
	delivered, settled map[string]bool
	read               map[string]bool // ids of dead letters
}

// newRecord creates a file of the history.
func newRecord(dir, name string) (*record, error) {
	w, err := history.Create(dir, name)
	return &record{Writer: w, read: map[string]bool{}, delivered: map[string]bool{}, settled: map[string]bool{}}, err
}

func (r *record) note(e history.Event) {
	r.Write(e)
	switch e.Kind {
	case history.Nacked, history.Reconsumed:
		r.failed.Add(1)
	case history.Refused:
		r.refused.Add(1)
	case history.Delivered, history.Acked:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.delivered[e.Message] = true
		r.settled[e.Message] = r.settled[e.Message] || e.Kind == history.Acked
	default:
	}
}

// counts has the numbers of messages and events until now.
type counts struct {
	delivered, settled           int // messages
	failed, refused, logFailures int // events
}

func (c counts) String() string {
	return fmt.Sprintf("%d delivered, %d failures, %d refused, %d settled", c.delivered, c.failed, c.refused, c.settled)
}

// progress counts the events of this process's Consumer. Other processes have files of their own.
func (t *trial) progress() counts {
	if t.local == nil {
		return counts{}
	}
	r := t.local.record
	r.mu.Lock()
	defer r.mu.Unlock()
	n := counts{delivered: len(r.delivered), failed: int(r.failed.Load()), refused: int(r.refused.Load()),
		logFailures: int(r.logFailures.Load())}
	for _, settled := range r.settled {
		if settled {
			n.settled++
		}
	}
	return n
}

// settledWithout counts the settled messages of all partitions except one.
func (t *trial) settledWithout(partition int) (n int) {
	r := t.local.record
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, settled := range r.settled {
		if i, err := strconv.Atoi(name); err == nil && settled && i%t.work.stride() != partition {
			n++
		}
	}
	return n
}

// named returns the work for a new consumer, with a new name.
func (t *trial) named() work {
	w := t.work
	t.started++
	w.Name = fmt.Sprintf("consumer-%d", t.started)
	return w
}

// noteFault records that all consumers may have lost their connections because of a fault.
func (t *trial) noteFault(why string) {
	t.faults++
	t.record.note(history.Event{Kind: history.Disconnected, Note: why})
}

// result is the result of checking a trial's history.
type result struct {
	history.Summary
	found    map[history.Fault]int
	findings []history.Finding
	// early deliveries to a consumer that had not nacked the message and, without a log, cannot know the delay
	elsewhere int
	most      int // the most deliveries of one message
	// settled messages that a Worker handled again although it knew that they might belong to another consumer
	stale int
}

// isElsewhere reports whether a finding is an early delivery to a consumer that had not nacked the message. That
// happens with batches, since the broker sends a whole batch for one of its messages.
func isElsewhere(f history.Finding) bool {
	return f.Fault == history.Early && f.Lines[0].Kind == history.Nacked &&
		f.Lines[0].Consumer != f.Lines[len(f.Lines)-1].Consumer
}

// finish checks the history.
func (t *trial) finish() (r result, err error) {
	c := history.New(history.Rules{Patience: patience - 5*time.Second, Durable: t.work.Durable, Serial: t.work.Ordered})
	deliveries, settled := map[string]int{}, map[string]bool{}
	err = history.ReadFolder(t.work.Dir, func(l *history.Line) {
		c.Add(l)
		switch l.Kind { //nolint:exhaustive // other kinds of events do not matter
		case history.Delivered:
			deliveries[l.Message]++
			r.most = max(r.most, deliveries[l.Message])
			if settled[l.Message] && l.Note == staleNote {
				r.stale++
			}
		case history.Acked, history.DeadLettered:
			settled[l.Message] = true
		}
	})
	r.Summary, r.findings = c.Finish()
	if !t.work.Durable {
		all := len(r.findings)
		r.findings = slices.DeleteFunc(r.findings, isElsewhere)
		r.elsewhere = all - len(r.findings)
	}
	r.found = map[history.Fault]int{}
	for _, f := range r.findings {
		r.found[f.Fault]++
	}
	if r.stale > 0 && t.work.Ordered {
		err = errors.Join(err, fmt.Errorf("with key order, %d settled messages were handled again although the Worker "+
			"knew that they might belong to another consumer", r.stale))
	}
	return r, err
}
