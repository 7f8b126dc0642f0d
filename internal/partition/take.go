package partition

import "time"

// Delivery is one hand-over of a message to the application.
type Delivery struct {
	ID         ID
	Source     any
	Object     any    // id of the newest delivery
	Body       any    // nil if it is not known here
	Note       any    // the caller's, from the nack before
	Count      uint32 // redelivery count
	Hand       uint64 // the Group's number of the hand-over; 0 for a message's first one if Count is 0
	FromMemory bool   // Take handed it out, not Arrive
	Again      bool   // the message was handed out before

	// For observers.
	Cause     Cause         // why the message came again
	Due       time.Duration // when its delay or its ack timeout was over; 0 if it had neither
	Earlier   uint32        // see Copy.Earlier
	HeldSince time.Duration // when the application got it
	HeldFor   time.Duration // of a waiting message: how long the application had it
}

// Cause is why a message is handed out again.
type Cause uint8

const (
	NoCause Cause = iota // it was neither nacked nor snoozed, nor did it time out
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
		Count: m.count, Hand: m.hand,
		Earlier: m.earlier, HeldSince: m.heldSince, HeldFor: m.heldFor,
	}
}

// deliver hands a message to the application, counts the hand-over, and describes it.
func (g *Group) deliver(now time.Duration, m *message, body any, d *Delivery) {
	g.clock.Stop(&m.timer)
	m.move(Held)
	if m.delivered {
		if !m.uncounted {
			m.count += min(1, ^m.count) // without overflow
		}
		m.count = max(m.count, m.brokerCount)
	}
	if m.delivered || m.count > 0 {
		g.hands++
		m.hand = g.hands
	}
	cause, due, again := m.cause, m.due, m.delivered
	m.heldSince, m.heldFor, m.due, m.cause, m.timeout = now, 0, 0, NoCause, 0
	m.delivered, m.uncounted, m.undecided = true, false, false
	g.newIsNext = false
	g.describe(m, d)
	d.Body, d.Cause, d.Due, d.Again = body, cause, due, again
}

// IsReady reports whether Take may return a message.
func (g *Group) IsReady() bool { return len(g.ready) > 0 }

// Taken notes that the application now takes a message from Chan. Its hand-over was the offer.
func (g *Group) Taken(now time.Duration, d Delivery) {
	if m, _ := g.find(d.ID); m != nil && m.isWith(d.Hand) {
		m.heldSince = now
	}
}

// Take hands out the next ready message and describes it in d. ok is false if no message is ready, or if a new message
// is next: new and redelivered messages alternate. hasNew says that a new message can be read.
func (g *Group) Take(now time.Duration, hasNew bool, d *Delivery) (ok bool) {
	if g.newIsNext && hasNew {
		g.newIsNext = false
		return false
	}
	g.newIsNext = false
	for len(g.ready) > 0 {
		m := g.ready[0]
		g.ready[0] = nil
		g.ready = g.ready[1:]
		m.queued = false
		switch {
		case m.state != Ready || m.busy > 0: // a busy message is queued again if its call fails
		case m.isStale():
			g.ask(now, m)
		default:
			g.ReceiverContinues(now)
			g.deliver(now, m, m.body, d)
			g.newIsNext, d.FromMemory = true, true
			return true
		}
	}
	return false
}
