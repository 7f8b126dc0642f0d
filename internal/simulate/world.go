package simulate

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"time"
)

// world is a topic, its subscription and the instances.
type world struct {
	Setup
	now        time.Duration
	events     events
	seq        int
	random     *rand.Rand
	sent       int  // messages that were sent to an instance; the others are only counted
	replay     fifo // messages that the broker will send again
	instances  []*instance
	turn       int           // the instance that gets the next message
	lastRetry  time.Duration // when the broker last handled a retry
	allUnacked int           // unacknowledged messages of all instances
	isFull     bool          // allUnacked has reached its limit, so that no new message is sent

	published, handled, dead int
	waiting                  int // messages that wait for their redelivery
	callsInStep              int
	callsInOutage            int
	points                   []Point
	step                     time.Duration
	recovered                time.Duration // when everything had recovered; 0 before
	largest                  Point
	unsettledMost            int
	peak                     int
	work                     int // events, and messages sent; limited by Setup.MostEvents
	visits                   int // how often dispatch asked an instance whether it takes a message
}

const (
	steps = 240 // approximate number of Points

	// request is the time until the broker sends a requested message again: half of the default resolution, and a round
	// trip.
	request = 6 * time.Millisecond

	visitsPerEvent = 100 // so many visits take as long as one event, and count as one
)

func newWorld(s Setup) *world {
	w := &world{Setup: s, random: rand.New(rand.NewPCG(1, 2))} //nolint:gosec // repeatable, not secret
	w.step = max(100*time.Millisecond, (s.Before+2*s.Outage)/steps).Round(100 * time.Millisecond)
	for i := range s.Instances {
		w.instances = append(w.instances, newInstance(w, i))
	}
	w.schedule(0, arrives, nil, 0)
	return w
}

// schedule adds an event that happens after a delay.
func (w *world) schedule(after time.Duration, k kind, m *message, of int) {
	w.push(event{at: w.now + after, kind: k, msg: m, of: of})
}

func (w *world) push(e event) {
	w.work++
	w.seq++
	e.seq = w.seq
	heap.Push(&w.events, e)
}

func (w *world) run() error {
	end := w.Before + w.Outage
	for {
		if w.MostEvents > 0 && w.work+w.visits/visitsPerEvent > w.MostEvents {
			return fmt.Errorf("more than %d events in the first %v", w.MostEvents, w.now.Round(time.Millisecond))
		}
		e := heap.Pop(&w.events).(event)
		for next := time.Duration(len(w.points)+1) * w.step; e.at >= next; next += w.step {
			w.endStep()
		}
		w.now = e.at
		w.happen(e)
		w.unsettledMost = max(w.unsettledMost, w.unsettled())
		switch {
		case w.now < end:
		case w.recovered == 0 && float64(w.unsettled()) <= max(w.Rate, 1):
			w.recovered = w.now
		case w.recovered > 0 && w.now >= w.recovered+max(10*w.step, w.Outage/10), w.now >= end+w.Longest:
			w.endStep()
			return nil
		}
	}
}

// bounded limits a delay to the length of the simulation, so that times do not overflow.
func (w *world) bounded(delay time.Duration) time.Duration {
	return min(max(0, delay), w.Before+w.Outage+w.Longest)
}

func (w *world) unsettled() int { return w.published - w.handled - w.dead }

// backlog returns how many messages at the broker were not sent to any instance yet.
func (w *world) backlog() int { return w.published - w.sent }

// endStep ends a step of the result.
func (w *world) endStep() {
	p := Point{Calls: w.callsInStep, Waiting: w.waiting, Dead: w.dead, Backlog: w.backlog() + w.replay.len()}
	for _, i := range w.instances {
		p.Backlog += i.queue.len() + i.ready.len() + i.aside.len()
	}
	w.largest.Backlog, w.largest.Waiting = max(w.largest.Backlog, p.Backlog), max(w.largest.Waiting, p.Waiting)
	w.peak = max(w.peak, p.Calls)
	w.points, w.callsInStep = append(w.points, p), 0
}

func (w *world) happen(e event) {
	switch e.kind {
	case arrives:
		w.published++
		w.schedule(time.Duration(float64(time.Second)/w.Rate), arrives, nil, 0)
	case succeeds, fails, probeFails:
		w.instances[e.of].finish(e.msg, e.kind)
	case delayEnds:
		w.instances[e.of].delayOver(e.msg)
	// A busy broker sends a retry up to a tick early, and the consumer keeps it until it is due. An idle broker sends
	// it at the next tick.
	case retryDue:
		if idle := w.now - w.lastRetry; idle >= w.Tick && w.Tick > 0 {
			w.schedule(w.Tick-w.now%w.Tick, retrySent, e.msg, 0)
		} else {
			w.schedule(0, retrySent, e.msg, 0)
		}
	case retrySent: // the retry topic has a receiver queue of its own
		w.lastRetry = w.now
		w.waiting--
		e.msg.brokerCount = e.msg.count
		i := w.instances[w.seq%len(w.instances)]
		if i.away {
			w.replay.push(e.msg)
			break
		}
		i.addUnacked(1)
		e.msg.holder = i.number
		i.ready.push(e.msg)
		i.take()
	case sentAgain:
		w.replay.push(e.msg)
	case pauseEnds:
		w.instances[e.of].beginTry(e.era)
	case waitEnds:
		w.instances[e.of].endWait(e.era)
	}
	w.dispatch()
}

// failsNow reports whether a call fails now.
func (w *world) failsNow() bool {
	return w.now >= w.Before && w.now < w.Before+w.Outage && (w.Partial >= 1 || w.random.Float64() < w.Partial)
}

// sendable returns how many messages the broker may send. If too many are unacknowledged, it sends nothing new until
// half of them are settled.
func (w *world) sendable() int {
	switch {
	case w.MaxTogether == 0:
	case w.allUnacked >= w.MaxTogether:
		w.isFull = true
	case w.allUnacked < w.MaxTogether/2:
		w.isFull = false
	}
	if w.isFull {
		return w.replay.len()
	}
	return w.backlog() + w.replay.len()
}

// dispatch sends messages to the instances in turn, first those that were requested again.
func (w *world) dispatch() {
	for full := 0; full < len(w.instances) && w.sendable() > 0; {
		i := w.instances[w.turn%len(w.instances)]
		w.turn++
		w.visits++
		if !i.permits() {
			full++
			continue
		}
		full = 0
		w.work++
		m := w.replay.pop()
		if m == nil {
			w.sent++
			m = &message{number: w.sent}
		}
		i.receive(m)
	}
}

// beginCall counts a handler that begins, and reports whether it will fail.
func (w *world) beginCall() (fails bool) {
	w.callsInStep++
	if w.now >= w.Before && w.now < w.Before+w.Outage {
		w.callsInOutage++
	}
	return w.failsNow()
}

func (w *world) result() Result {
	r := Result{Calls: w.callsInOutage, Peak: float64(w.peak) / w.step.Seconds(), Backlog: w.largest.Backlog,
		Waiting: w.largest.Waiting, Unsettled: w.unsettledMost, Dead: w.dead,
		Handled: w.handled, Recovered: w.recovered > 0, Step: w.step, Points: w.points}
	if r.Recovered {
		r.After = w.recovered - w.Before - w.Outage
	}
	return r
}
