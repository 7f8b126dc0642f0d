package model

import (
	"container/heap"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"
)

// modelWorld is the clock of a model, and has the future events in order of time. One goroutine runs the events. Before
// each event it waits until all other goroutines are blocked, so that a seed reproduces a run.
type modelWorld struct {
	start time.Time
	kick  chan struct{} // an event was added
	calm  atomic.Bool   // no more faults

	mu     sync.Mutex // also guards the broker and its consumer; not held during calls of the Consumer
	events modelEvents
	added  int

	saying  sync.Mutex // guards trace and failure; not held during calls of other functions
	trace   []string
	failure string
}

type modelEvent struct {
	at    time.Time
	order int
	do    func()
}

type modelEvents []modelEvent

func (e modelEvents) Len() int { return len(e) }
func (e modelEvents) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].order < e[j].order
}
func (e modelEvents) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *modelEvents) Push(x any)   { *e = append(*e, x.(modelEvent)) }
func (e *modelEvents) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func newModelWorld() *modelWorld {
	return &modelWorld{start: time.Now(), kick: make(chan struct{}, 1)}
}

// at schedules a call of do. The caller of at holds mu. do is called without mu.
func (w *modelWorld) at(at time.Time, do func()) {
	w.added++
	heap.Push(&w.events, modelEvent{at, w.added, do})
	w.nudge()
}

// after schedules a call of do after d. The caller does not hold mu.
func (w *modelWorld) after(d time.Duration, do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at(time.Now().Add(d), do)
}

// locked returns a function that holds mu while it calls do.
func (w *modelWorld) locked(do func()) func() {
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		do()
	}
}

func (w *modelWorld) nudge() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// run runs events until over returns true, and then returns true. It returns false if limit has passed or the run has
// failed.
func (w *modelWorld) run(limit time.Duration, over func() bool) bool {
	return w.runOn(limit, func() bool { return over() || w.failed() }) && !w.failed()
}

// runOn is like run, but continues after a failure.
func (w *modelWorld) runOn(limit time.Duration, over func() bool) bool {
	end := time.Now().Add(limit)
	for {
		synctest.Wait()
		if over() {
			return true
		}
		w.mu.Lock()
		wait := time.Until(end)
		var do func()
		if len(w.events) > 0 {
			if until := time.Until(w.events[0].at); until <= 0 {
				do = heap.Pop(&w.events).(modelEvent).do
			} else {
				wait = min(wait, until)
			}
		}
		w.mu.Unlock()
		switch {
		case do != nil:
			do()
		case wait <= 0:
			return false
		default:
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-w.kick:
			}
			timer.Stop()
		}
	}
}

// note adds a line to the trace, which is printed if the run fails.
func (w *modelWorld) note(format string, args ...any) {
	w.saying.Lock()
	defer w.saying.Unlock()
	if w.failure != "" {
		return // after a failure there are only events of the shutdown
	}
	w.trace = append(w.trace, fmt.Sprintf("%14v ", time.Since(w.start).Round(time.Microsecond))+fmt.Sprintf(format, args...))
	if len(w.trace) > 4000 {
		w.trace = append([]string(nil), w.trace[2000:]...)
	}
}

// fail ends the run. The first failure counts.
func (w *modelWorld) fail(format string, args ...any) {
	w.note("FAILS: "+format, args...)
	w.saying.Lock()
	if w.failure == "" {
		w.failure = fmt.Sprintf("after %v: ", time.Since(w.start).Round(time.Microsecond)) + fmt.Sprintf(format, args...)
	}
	w.saying.Unlock()
	w.nudge()
}

func (w *modelWorld) failed() bool {
	w.saying.Lock()
	defer w.saying.Unlock()
	return w.failure != ""
}

// end returns the last lines of the trace.
func (w *modelWorld) end(lines int) string {
	w.saying.Lock()
	defer w.saying.Unlock()
	return strings.Join(w.trace[max(0, len(w.trace)-lines):], "\n")
}
