package partition

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// fixture is a Group and its time. Most tests have one message, firstID. The Object of a copy is its number.
type fixture struct {
	group
	now        time.Duration
	deliveries int    // copies made so far
	requests   int    // requests that runTimers has returned
	hand       uint64 // number of the hand-over by arrives
}

// group is a Group whose methods return their results instead of writing them to pointers.
type group struct{ *Group }

// arrival is the result of Arrive.
type arrival struct {
	Verdict
	Delivery
	Again
}

func (g group) Arrive(now time.Duration, c Copy) (a arrival) {
	a.Verdict, a.Again = g.Group.Arrive(now, &c, &a.Delivery)
	return a
}

func (g group) Take(now time.Duration, hasNew bool) (d Delivery, ok bool) {
	ok = g.Group.Take(now, hasNew, &d)
	return d, ok
}

func (g group) BeginAck(id ID) (a Ack, err error) {
	err = g.Group.BeginAck(id, &a)
	return a, err
}

func (g group) isSettled(id ID) bool {
	i, _, _ := g.Find(id, AnyHand)
	return i.State == Settled
}

func (g group) Advance(now time.Duration) (d Decisions) {
	if decided := g.Group.Advance(now); decided != nil {
		d = *decided
	}
	return d
}

var firstID = ID{"A", 1, 0, 0}

func newFixture(o Options) *fixture {
	if o.MemoryLimit == 0 {
		o.MemoryLimit = 100
	}
	return &fixture{group: group{New(o)}}
}

// copy returns another delivery of a message by the broker.
func (f *fixture) copy(id ID, total int32) Copy {
	f.deliveries++
	return Copy{ID: id, Source: "source", Object: f.deliveries, Body: "body", Total: total, Size: 1}
}

// arrives lets a copy of firstID arrive.
func (f *fixture) arrives() arrival {
	a := f.arrivesAs(firstID, 1, nil)
	if a.Verdict == Deliver {
		f.hand = a.Hand
	}
	return a
}

// nack nacks firstID for a minute, and reports whether that changed anything.
func (f *fixture) nack() bool {
	_, changed, _ := f.Nack(f.now, Failure{ID: firstID, Hand: AnyHand, Delay: time.Minute})
	return changed
}

// How ack finds a message.
const (
	unknown = "unknown"
	open    = "open"
	settled = "settled"
)

// ack begins to acknowledge firstID, and ends the acknowledgement with an outcome.
func (f *fixture) ack(outcome Outcome) string {
	switch a, _ := f.BeginAck(firstID); {
	case a.Late:
		return settled
	case a.Object == nil:
		return unknown
	default:
		f.EndAck(f.now, &a, outcome)
		return open
	}
}

// runTimers calls Advance, and counts the requests.
func (f *fixture) runTimers() {
	f.requests += len(f.Advance(f.now).Requests)
}

// timePasses lets time pass until the next timer goes off. It does not stop at a timer of settled ids while there are
// others.
func (f *fixture) timePasses() {
	for goesOn := true; goesOn; {
		timers := f.clock.Timers()
		goesOn = len(timers) > 1 && timers[0].Of.settled != nil
		if at, ok := f.NextTimer(); ok {
			f.now = max(f.now, at)
		}
		f.runTimers()
	}
}

// state returns the state of firstID.
func (f *fixture) state() State {
	if m, _ := f.find(firstID); m != nil {
		return m.state
	}
	if p := f.partitions["A"]; p != nil && p.settled.has(firstID.position(), 0) {
		return Settled
	}
	return Unseen
}

// bringTo brings firstID from unseen to a state.
func (f *fixture) bringTo(s State) {
	switch s {
	case Unseen:
	case Held:
		f.arrives()
	case Waiting:
		f.bringTo(Held)
		f.nack()
	case Ready:
		f.bringTo(Waiting)
		f.timePasses()
	case Asked:
		f.bringTo(Waiting)
		m, _ := f.find(firstID)
		f.drop(m)
		f.timePasses()
	case Settled:
		f.bringTo(Held)
		f.ack(Done)
	}
	f.requests = 0
}

// TestTable has a row for each cell of the table in the package comment.
func TestTable(t *testing.T) {
	arrives := func(f *fixture) any { return f.arrives().Verdict }
	nacked := func(f *fixture) any { return f.nack() }
	acked := func(f *fixture) any { return f.ack(Done) }
	notAcked := func(f *fixture) any { return f.ack(Failed) }
	over := func(f *fixture) any { f.timePasses(); return f.requests }
	lost := func(f *fixture) any { f.Lost(f.now); f.runTimers(); return f.requests }
	lostThenOver := func(f *fixture) any { f.Lost(f.now); f.timePasses(); return f.requests }
	shared, exclusive := Options{Kind: Shared}, Options{Kind: Exclusive}
	for _, c := range []struct {
		o     Options
		from  State
		event string
		do    func(*fixture) any
		to    State
		want  any
	}{
		{shared, Unseen, "a copy arrives", arrives, Held, Deliver},
		{shared, Held, "a copy arrives", arrives, Held, Buffered},
		{shared, Waiting, "a copy arrives", arrives, Waiting, Buffered},
		{shared, Ready, "a copy arrives", arrives, Ready, Buffered},
		{shared, Asked, "a copy arrives", arrives, Held, Deliver},
		{shared, Settled, "a copy arrives", arrives, Settled, AckAgain},

		{shared, Unseen, "nack", nacked, Unseen, false},
		{shared, Held, "nack", nacked, Waiting, true},
		{shared, Waiting, "nack", nacked, Waiting, false},
		{shared, Ready, "nack", nacked, Ready, false},
		{shared, Asked, "nack", nacked, Asked, false},
		{shared, Settled, "nack", nacked, Settled, false},

		{shared, Unseen, "ack succeeds", acked, Unseen, unknown},
		{shared, Held, "ack succeeds", acked, Settled, open},
		{shared, Waiting, "ack succeeds", acked, Settled, open},
		{shared, Ready, "ack succeeds", acked, Settled, open},
		{shared, Asked, "ack succeeds", acked, Settled, open},
		{shared, Settled, "ack succeeds", acked, Settled, settled},

		{shared, Unseen, "ack fails", notAcked, Unseen, unknown},
		{shared, Held, "ack fails", notAcked, Held, open},
		{shared, Waiting, "ack fails", notAcked, Waiting, open},
		{shared, Ready, "ack fails", notAcked, Ready, open},
		{shared, Asked, "ack fails", notAcked, Asked, open},
		{shared, Settled, "ack fails", notAcked, Settled, settled},

		{shared, Unseen, "its time is over", over, Unseen, 0},
		{shared, Held, "its time is over", func(f *fixture) any {
			f.StartTimeout(f.now, firstID, f.hand, time.Minute)
			f.timePasses()
			return f.requests
		}, Asked, 1}, // requested, since another consumer may do better
		{exclusive, Held, "its time is over", func(f *fixture) any {
			f.StartTimeout(f.now, firstID, f.hand, time.Minute)
			f.timePasses()
			return f.requests
		}, Ready, 0},
		{shared, Waiting, "its time is over", over, Ready, 0},
		{shared, Ready, "its time is over", over, Asked, 1},
		{exclusive, Ready, "its time is over", over, Ready, 0},
		{shared, Asked, "its time is over", func(f *fixture) any { f.ReceiverWaits(f.now); f.timePasses(); return f.requests }, Asked, 1},
		{shared, Settled, "its time is over", over, Settled, 0},

		{shared, Unseen, "connection lost", lost, Unseen, 0},
		{shared, Held, "connection lost", lost, Held, 0},
		{shared, Waiting, "connection lost", lost, Waiting, 0},
		{shared, Ready, "connection lost", lost, Ready, 0},
		{exclusive, Ready, "connection lost", lost, Ready, 0},
		{shared, Asked, "connection lost", lost, Asked, 0},
		{shared, Ready, "connection lost, taken", func(f *fixture) any {
			f.Lost(f.now)
			_, ok := f.Take(f.now, false)
			assert.False(t, ok)
			f.runTimers()
			return f.requests
		}, Asked, 1},
		{shared, Settled, "connection lost", lost, Settled, 0},
		{shared, Held, "connection lost, nack, delay over", func(f *fixture) any {
			f.Lost(f.now)
			f.nack()
			f.timePasses()
			return f.requests
		}, Asked, 1},
		{shared, Waiting, "connection lost, delay over", lostThenOver, Asked, 1},
		{exclusive, Waiting, "connection lost, delay over", lostThenOver, Ready, 0},
		{shared, Waiting, "connection lost, a copy arrives, delay over", func(f *fixture) any {
			f.Lost(f.now)
			f.arrives()
			f.timePasses()
			return f.requests
		}, Ready, 0},
	} {
		t.Run(c.from.String()+", "+c.event, func(t *testing.T) {
			f := newFixture(c.o)
			f.bringTo(c.from)
			assert.Equal(t, c.from, f.state(), "before")
			assert.Equal(t, c.want, c.do(f))
			assert.Equal(t, c.to, f.state(), "after")
		})
	}
}
