package partition

import "time"

const (
	// A ready message that the application does not take for so long goes back to the broker, for another consumer. On
	// Key_Shared, so does a due message that first failed that long ago.
	readyShared    = 30 * time.Second
	readyKeyShared = 5 * time.Second
)

// Delivery is one hand-over of a message to the application.
type Delivery struct {
	ID         ID
	Source     any
	Object     any    // id of the newest delivery
	Body       any    // nil if it is not known here
	Note       any    // the caller's, from the nack before
	Count      uint32 // redelivery count
	Hand       uint64 // number of the hand-over; 0 for the first one of a message that the broker sent for the first time
	Last       bool   // if it fails, no delivery is left
	FromMemory bool   // the broker was not asked
	Again      bool   // it was handed out before

	// For observers.
	Cause Cause         // why it came again
	Due   time.Duration // when its delay or its ack timeout was over; 0 if neither was waited for
	Since time.Duration // when the application got it
	Had   time.Duration // how long the application had it, if it waits
}

// Cause is why a message is handed out again.
type Cause uint8

const (
	NoCause Cause = iota // the application did not give it back
	Nacked
	Snoozed
	TimedOut // its ack timeout was over
)

// delivery describes the newest hand-over of a message.
func (g *Group) delivery(m *message) (d Delivery) {
	g.describe(m, &d)
	return d
}

func (g *Group) describe(m *message, d *Delivery) {
	p := m.entry.partition
	*d = Delivery{
		ID:     ID{p.topic, m.entry.at.ledger, m.entry.at.entry, m.index},
		Source: p.source, Object: m.id, Body: m.body, Note: m.note,
		Count: m.count, Hand: m.hand, Last: g.o.isLast(m.count),
		Since: m.since, Had: m.had,
	}
}

// deliver hands a message to the application, counts the hand-over, and describes it.
func (g *Group) deliver(now time.Duration, m *message, body any, d *Delivery) {
	g.clock.Stop(&m.timer)
	m.move(Held)
	if m.delivered {
		if !m.uncounted {
			m.count += min(1, ^m.count)
		}
		m.count = max(m.count, m.broker)
	}
	if m.delivered || m.count > 0 {
		g.hands++
		m.hand = g.hands
	}
	cause, due, again := m.cause, m.due, m.delivered
	m.since, m.had, m.due, m.cause, m.timeout = now, 0, 0, NoCause, 0
	m.delivered, m.uncounted, m.overdue, m.undecided = true, false, false, false
	g.newsTurn = false
	g.describe(m, d)
	d.Body, d.Cause, d.Due, d.Again = body, cause, due, again
}

// IsReady reports whether Take may return a message.
func (g *Group) IsReady() bool { return len(g.ready) > 0 }

// Taken notes that the application took a message only now, after its hand-over.
func (g *Group) Taken(now time.Duration, d Delivery) {
	if m, _ := g.find(d.ID); m != nil && m.isWith(d.Hand) {
		m.since = now
	}
}

// Take hands out the next ready message and describes it in d. ok is false if none is ready, or if it is the turn of a
// new message: new and redelivered messages alternate. isNew says that a new message can be read.
func (g *Group) Take(now time.Duration, isNew bool, d *Delivery) (ok bool) {
	if g.newsTurn && isNew {
		g.newsTurn = false
		return false
	}
	g.newsTurn = false
	for len(g.ready) > 0 {
		m := g.ready[0]
		g.ready[0] = nil
		g.ready = g.ready[1:]
		m.queued = false
		switch {
		case m.state != Ready || m.busy > 0: // settled, or busy: it is queued again if the call fails
		case m.isStale():
			g.ask(now, m)
		default:
			g.Unwait(now)
			g.deliver(now, m, m.body, d)
			g.newsTurn, d.FromMemory = true, true
			return true
		}
	}
	return false
}

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

// readyTooLong gives back a ready message that the application did not take in time.
func (g *Group) readyTooLong(now time.Duration, m *message) {
	if g.canReturn(m) {
		g.ask(now, m)
		return
	}
	g.clock.Set(&m.timer, now+g.readyTime())
}

// delayOver hands a message out from memory, or asks the broker for it.
func (g *Group) delayOver(now time.Duration, m *message) {
	if m.fails() && g.isBetterElsewhere(now, m) && g.canReturn(m) {
		g.ask(now, m)
		return
	}
	g.makeReady(now, m)
}

// fails reports whether the application failed on a message. A message that was only held back, or put back, has no
// reason to go to another consumer: the broker would count the request.
func (m *message) fails() bool { return m.delivered && !m.uncounted }

// isBetterElsewhere reports whether another consumer may do better with a due message.
func (g *Group) isBetterElsewhere(now time.Duration, m *message) bool {
	return m.cause == TimedOut || g.o.isLast(m.count+1) || g.outcomes.mostlyFail() ||
		g.o.Kind == KeyShared && m.firstFailed > 0 && now-m.firstFailed >= readyKeyShared
}

// canReturn reports whether a message may become another consumer's. A batch is sent whole, unless the broker
// knows which of its messages are acknowledged.
func (g *Group) canReturn(m *message) bool {
	e := m.entry
	return g.o.hasOthers() && m.cause != Snoozed && !g.o.Stays && e.in[Held] == 0 && e.busy == 0 && (e.in[Settled] == 0 || g.o.IndexAcks == KeptIndexAcks)
}
