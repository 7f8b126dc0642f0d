package partition

import (
	"slices"
	"time"
)

// Failure is a nack.
type Failure struct {
	ID        ID
	Hand      uint64        // number of the hand-over, or AnyHand
	Delay     time.Duration // until the next hand-over
	Uncounted bool          // this hand-over does not count: it was snoozed, or the application never had the message
	Note      any           // the caller's, for the next Delivery
	// The application's copy. Its body is kept if there is room. If the message is not known, Copy.Source and
	// Copy.Object are needed. Copy.ID.Topic is believed only if the ledger is not known: a wrapper of the application
	// may return another topic.
	Copy Copy
}

// AnyHand stands for the newest hand-over. It is for a bare id and for a wrapped message, which do not show the
// hand-over that they are from.
const AnyHand = ^uint64(0)

// Nack takes a message back from the application until its delay is over. It reports whether that changed anything: a
// second nack, a nack of an earlier hand-over and a nack of a settled message change nothing.
func (g *Group) Nack(now time.Duration, f Failure) (Delivery, bool, error) {
	m, err := g.find(f.ID)
	if err != nil {
		return Delivery{}, false, err
	}
	if m == nil || m.state == Unseen {
		if m = g.adopt(f); m == nil {
			return Delivery{}, false, nil
		}
	}
	if !m.isWith(f.Hand) {
		return g.delivery(m), false, nil
	}
	d := g.delivery(m)
	if g.o.Drops && !f.Uncounted {
		g.drop(m) // an earlier copy may have been kept
	} else {
		g.keep(m, &f.Copy)
	}
	m.uncounted = f.Uncounted
	if !f.Uncounted {
		g.countFailure(now, m)
	}
	m.cause, m.note = Nacked, f.Note
	if f.Uncounted {
		m.cause = Snoozed
	}
	g.waitUntil(now, m, add(now, f.Delay))
	return d, true, nil
}

// adopt adds a nacked message that is not in the table, since it was forgotten or another consumer received it.
func (g *Group) adopt(f Failure) *message {
	p, _ := g.partitionOf(f.ID)
	if p == nil && f.Copy.ID.Topic != "" && f.Copy.Source != nil {
		p = g.partition(f.Copy.ID.Topic, f.Copy.Source)
	}
	if p != nil && p.source == nil {
		p.source = f.Copy.Source
	}
	at := f.ID.position()
	if p == nil || f.Copy.Object == nil || f.ID.Index < 0 || p.settled.has(at, f.ID.Index) {
		return nil
	}
	m := g.entry(p, p.entryAt(at), at, f.Copy.Total).message(f.ID.Index)
	if m.busy > 0 || m.state == Settled {
		return nil
	}
	m.move(Held)
	m.id, m.epoch, m.count, m.delivered, m.hand = f.Copy.Object, 0, f.Copy.Count, true, f.Hand
	return m
}

// countFailure counts that the application failed on a message.
func (g *Group) countFailure(now time.Duration, m *message) {
	g.outcomes.add(true)
	if m.firstFailed == 0 {
		m.firstFailed = now
	}
}

// waitUntil makes a message wait until due.
func (g *Group) waitUntil(now time.Duration, m *message, due time.Duration) {
	if m.state == Held && m.delivered && !m.undecided {
		m.heldFor = now - m.heldSince
	}
	m.move(Waiting)
	m.waitsSince, m.timeout, m.due, m.undecided = now, 0, due, false
	g.clock.Set(&m.timer, due)
}

// RedeliverNow makes all waiting messages due, in the order in which they would have become due, and returns their
// number.
func (g *Group) RedeliverNow(now time.Duration) int {
	waiting := slices.DeleteFunc(slices.Clone(g.clock.Timers()), func(t *timer) bool {
		return t.Of.message == nil || t.Of.message.state != Waiting
	})
	slices.SortFunc(waiting, func(a, b *timer) int {
		if a.Before(b) {
			return -1
		}
		return 1
	})
	for _, t := range waiting {
		g.clock.Set(t, now)
	}
	return len(waiting)
}

// TakeBackStale takes a stale message back from an application that does not want it while another consumer may have
// it. If the message still belongs to this consumer, the broker sends it again: by itself or, if another partition lost
// the connection, after a request. Its redelivery count does not grow, and is d.Count if that is larger than the
// Group's.
func (g *Group) TakeBackStale(now time.Duration, d Delivery) {
	m, _ := g.find(d.ID)
	if m == nil || !m.isWith(d.Hand) {
		return
	}
	m.count = max(m.count, d.Count)
	m.uncounted, m.cause, m.timeout = true, d.Cause, 0
	g.clock.Stop(&m.timer)
	g.drop(m)
	g.expect(now, m)
}

// Recall corrects a hand-over that Take or Arrive has just made, because a log of attempts knows more: the message was
// delivered tries times before, and must not be handed out before wait is over. If wait is positive, Recall takes the
// message back and returns false.
func (g *Group) Recall(now time.Duration, d *Delivery, tries uint32, wait time.Duration) (stillDue bool) {
	m, _ := g.find(d.ID)
	if m == nil || !m.isWith(d.Hand) {
		return true
	}
	m.count = max(m.count, tries)
	d.Count = m.count
	if wait > 0 {
		m.uncounted, m.cause = true, d.Cause
		g.waitUntil(now, m, add(now, wait))
	}
	return wait <= 0
}

// PutBack takes back a message that was handed out but never reached the application. The next Take returns it, before
// any later message: a cumulative acknowledgement of a later message would lose this one.
func (g *Group) PutBack(now time.Duration, d Delivery) {
	m, _ := g.find(d.ID)
	if m == nil || !m.isWith(d.Hand) {
		return
	}
	m.uncounted, m.cause = true, d.Cause
	if m.body == nil && d.Body != nil { // kept even if it exceeds the memory limit
		m.body = d.Body
		m.entry.kept++
	}
	g.waitUntil(now, m, now)
	if m.busy == 0 {
		g.clock.Stop(&m.timer)
		g.delayOver(now, m)
	}
	if m.state == Ready {
		g.ready = slices.DeleteFunc(g.ready, func(other *message) bool { return other == m })
		g.ready = slices.Insert(g.ready, 0, m)
		g.newIsNext = false
	}
}
