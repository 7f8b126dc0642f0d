package main

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/history"
)

// record is one file of a trial's history, and how far its messages are.
type record struct {
	*history.Writer
	failed      atomic.Int64
	refused     atomic.Int64
	logFailures atomic.Int64 // of the log of attempts

	mu                 sync.Mutex
	delivered, settled map[string]bool
}

// newRecord makes the file of a name anew.
func newRecord(dir, name string) (*record, error) {
	w, err := history.Create(dir, name)
	return &record{Writer: w, delivered: map[string]bool{}, settled: map[string]bool{}}, err
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

// counts are how far the messages are.
type counts struct {
	delivered, settled           int // messages
	failed, refused, logFailures int // events
}

func (c counts) String() string {
	return fmt.Sprintf("%d delivered, %d failures, %d refused, %d settled", c.delivered, c.failed, c.refused, c.settled)
}

// progress counts what the Consumer of this process did; those of other processes are in their files.
func (t *trial) progress() counts {
	if t.local == nil {
		return counts{}
	}
	r := t.local.record
	r.mu.Lock()
	defer r.mu.Unlock()
	n := counts{delivered: len(r.delivered), failed: int(r.failed.Load()), refused: int(r.refused.Load()), logFailures: int(r.logFailures.Load())}
	for _, settled := range r.settled {
		if settled {
			n.settled++
		}
	}
	return n
}

// settledBeside counts the settled messages of all partitions but one.
func (t *trial) settledBeside(partition int) (n int) {
	r := t.local.record
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, settled := range r.settled {
		if i, err := strconv.Atoi(name); err == nil && settled && i%t.work.apart() != partition {
			n++
		}
	}
	return n
}

// named is the work of one more consumer.
func (t *trial) named() work {
	w := t.work
	t.started++
	w.Name = fmt.Sprintf("consumer-%d", t.started)
	return w
}

// broke notes that all consumers may have lost their connections.
func (t *trial) broke(why string) {
	t.faults++
	t.record.note(history.Event{Kind: history.Disconnected, Note: why})
}

// result is what the history of a trial shows.
type result struct {
	history.Summary
	found    map[history.Fault]int
	findings []history.Finding
}

// finish checks the history.
func (t *trial) finish() (r result, err error) {
	c := history.New(history.Rules{Patience: patience - 5*time.Second})
	err = history.ReadFolder(t.work.Dir, c.Add)
	r.Summary, r.findings = c.Finish()
	r.found = map[history.Fault]int{}
	for _, f := range r.findings {
		r.found[f.Fault]++
	}
	return r, err
}
