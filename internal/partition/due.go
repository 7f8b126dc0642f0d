package partition

import (
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/clock"
)

// Decisions are what Advance has decided. The caller carries them out, with no lock held.
type Decisions struct {
	Requests    []Request  // to send to the broker
	DeadLetters []Delivery // last deliveries that timed out, to publish as dead letters: first Nack, then BeginAck
	TimedOut    []Delivery // deliveries whose ack timeout is over, for observers
	Settled     []Delivery // messages that were settled, for a log of attempts; only if Options.Reports
}

func (d *Decisions) areNone() bool {
	return d.Requests == nil && d.DeadLetters == nil && d.TimedOut == nil && d.Settled == nil
}

// Request asks the broker to send an entry again.
type Request struct {
	Source any // of the partition
	Topic  string
	ID     any // of the newest delivery of a message that is due
}

// Advance lets the timers go off that are due at now, and returns the decisions since the previous call; nil if there
// are none. Call it after every call of another method, and at the time that NextTimer returns.
func (g *Group) Advance(now time.Duration) *Decisions {
	g.reading.at(now)
	for t := g.clock.Pop(now); t != nil; t = g.clock.Pop(now) {
		switch {
		case t.Of.request != nil:
			g.pauseOver(now, t.Of.request)
		case t.Of.settled != nil:
			g.ageSettled(now, t.Of.settled)
		case t.Of.message.busy > 0: // resume sets the timer again
		default:
			g.timeOver(now, t.Of.message)
		}
	}
	if g.out.areNone() {
		return nil
	}
	out := g.out
	g.out = Decisions{}
	return &out
}

// NextTimer returns when the next timer goes off; ok is false if no timer is set.
func (g *Group) NextTimer() (at time.Duration, ok bool) {
	return g.clock.Next()
}

// timer belongs to a message, to a request, or to the settled ids of a partition.
type timer = clock.Timer[timed]

// timed is the owner of a timer. One field is set.
type timed struct {
	message *message
	request *request
	settled *Partition
}

// timeOver handles a message whose timer went off.
func (g *Group) timeOver(now time.Duration, m *message) {
	switch m.state {
	case Held:
		g.ackTimeoutOver(now, m)
	case Waiting:
		g.delayOver(now, m)
	case Ready:
		g.readyTooLong(now, m)
	case Unseen, Asked, Settled:
	}
}

const (
	// A ready message that the application does not take for so long goes back to the broker, for another consumer. On
	// Key_Shared, so does a due message that first failed that long ago.
	readyShared    = 30 * time.Second
	readyKeyShared = 5 * time.Second
)

// makeReady queues a message for Take. If the body is not kept, or another consumer may have the message by now,
// makeReady requests the message instead.
func (g *Group) makeReady(now time.Duration, m *message) {
	if m.body == nil || m.isStale() {
		g.ask(now, m)
		return
	}
	if m.state != Ready {
		m.move(Ready)
	}
	if !m.queued {
		m.queued = true
		g.ready = append(g.ready, m)
	}
	if g.o.hasOthers() {
		g.clock.Set(&m.timer, now+g.readyTime())
	}
}

func (g *Group) readyTime() time.Duration {
	if g.o.Kind == KeyShared {
		return readyKeyShared
	}
	return readyShared
}

// readyTooLong gives back a ready message that the application did not take in time, if it may go to another consumer.
func (g *Group) readyTooLong(now time.Duration, m *message) {
	if g.canReturn(m) {
		g.ask(now, m)
		return
	}
	g.clock.Set(&m.timer, now+g.readyTime())
}

// delayOver makes a message whose delay is over ready. If another consumer may do better with it, delayOver requests it
// from the broker instead.
func (g *Group) delayOver(now time.Duration, m *message) {
	if m.hasFailed() && g.isBetterElsewhere(now, m) && g.canReturn(m) {
		g.ask(now, m)
		return
	}
	g.makeReady(now, m)
}

// hasFailed reports whether the application failed on the newest hand-over. Another consumer has no advantage with a
// message that was only held back, snoozed or put back, and the broker would count the request.
func (m *message) hasFailed() bool { return m.delivered && !m.uncounted }

// isBetterElsewhere reports whether another consumer may do better with a due message.
func (g *Group) isBetterElsewhere(now time.Duration, m *message) bool {
	return m.cause == TimedOut || g.o.isLast(m.count+1) || g.outcomes.mostlyFail() ||
		g.o.Kind == KeyShared && m.firstFailed > 0 && now-m.firstFailed >= readyKeyShared
}

// canReturn reports whether a message may go to another consumer. The broker sends a batch whole, unless it knows which
// messages of the batch are acknowledged.
func (g *Group) canReturn(m *message) bool {
	e := m.entry
	return g.o.hasOthers() && m.cause != Snoozed && !g.o.Stays &&
		e.in[Held] == 0 && e.busy == 0 && (e.in[Settled] == 0 || g.o.IndexAcks == KeptIndexAcks)
}
