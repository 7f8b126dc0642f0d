package worker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// called is a message that a handler has.
type called struct {
	*fate
	lane  string // its key
	end   error
	count uint32
}

func (e *employee) handle(ctx context.Context, msg pulsar.Message) error {
	return e.handleBatch(ctx, []pulsar.Message{msg})
}

// handleBatch ends the call as the fate of each message says; one may fail all of a batch.
func (e *employee) handleBatch(ctx context.Context, msgs []pulsar.Message) error {
	var all []*called
	d := ms(rand.IntN(3))
	for _, msg := range msgs {
		m := e.begins(msg)
		all, d = append(all, m), max(d, m.slow)
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
		for i := 0; i < len(all) && all[0].calls%2 == 0; i++ { // others succeed all the same
			all[i].end = ctx.Err()
		}
	}
	each := worker.BatchError{}
	for i, m := range all {
		if m.end == errPanics || m.end == errExits || m.end == errWhole || len(all) == 1 {
			e.over(all, len(all) > 1)
			return returns(m.end)
		}
		each[i] = m.end
	}
	e.over(all, false)
	return each
}

// begins notes that a handler gets a message, and asserts that it may.
func (e *employee) begins(msg pulsar.Message) *called {
	e.mu.Lock()
	defer e.mu.Unlock()
	now, f, lane := time.Now(), e.fateOf(msg), ""
	f.note("%d: called with count %d, of %s %v", e.k, msg.RedeliveryCount(), msg.Topic(), msg.ID())
	if f.key != "" {
		lane = topicname.Base(msg.Topic()) + " " + f.key
	}
	if isEarly := f.worker == e.k && now.Before(f.due); !isEarly {
		f.early = 0
	} else if f.early++; f.early > e.Local && !e.MayFork() && !e.MayTimeOut() { // its ack timeout may have been over before it failed
		e.breaks("early by %v: %v", f.due.Sub(now), f)
	}
	switch {
	case (f.succeeded || f.dead) && e.Exact():
		e.breaks("handled again: %v", f)
	case f.busy[e.k] && !e.MayFork():
		e.breaks("handled twice at once: %v", f)
	case e.KeyOrder && lane != "" && e.lanes[lane] > 0:
		e.breaks("handled together with another of its key: %v", f)
	case e.Ordered() && lane != "" && f.calls == 0:
		for _, before := range f.before {
			if !before.isOver() && !before.mayBeDead {
				e.breaks("handled before another of its key: %v\n%v", f, before)
			}
		}
	}
	e.last = now
	e.lanes[lane]++
	f.busy[e.k] = true
	f.calls++
	f.worker, f.due, f.dead, f.mayBeDead = e.k, time.Time{}, false, false
	return &called{f, lane, f.end(e.down && rand.IntN(20) > 0), msg.RedeliveryCount()}
}

// over notes how a call ends. With one error for all of a batch these may be handled again at once: it is halved.
func (e *employee) over(all []*called, together bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = time.Now()
	for _, m := range all {
		f, end := m.fate, m.end
		if together {
			end = errWhole
		}
		f.note("%d: %v", e.k, end)
		e.lanes[m.lane]--
		delete(f.busy, e.k)
		if d, told := e.delay(f, end, m.count); told && !together && f.worker == e.k { // else another has it meanwhile
			f.due = e.last.Add(d)
		}
		if end == f.retry || worker.IsSnooze(end) { // without local retries
			f.early = e.Local
		}
		isLast := end != nil && !worker.IsSnooze(end) && e.MaxDeliveries > 0 && m.count+1 >= e.MaxDeliveries
		f.succeeded = f.succeeded || end == nil
		f.dead = end == f.permanent || isLast && !together && e.Local == 0 && e.Window == 0 // else it may be tried again at once
		f.mayBeDead = f.dead || isLast
	}
}

func (f *fate) note(format string, args ...any) {
	f.history = append(f.history, fmt.Sprint(time.Now().Format("05.000 "), fmt.Sprintf(format, args...)))
}
