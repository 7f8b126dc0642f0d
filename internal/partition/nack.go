package partition

import (
	"slices"
	"time"
)

// Failure is a message that the application gives back for later.
type Failure struct {
	ID        ID
	Hand      uint64 // of the hand-over, or AnyHand
	Delay     time.Duration
	Uncounted bool // the message was snoozed: the next hand-over does not count
	Note      any  // the caller's, for the next delivery
	// The application's copy, kept if there is room. If the message is not known, Source and Object are needed, and
	// ID.Topic is believed if the ledger is not known either: a wrapper of the application may have another topic.
	Copy Copy
}

// AnyHand names the newest hand-over: the id or the wrapped message of the application does not show which hand-over it
// had.
const AnyHand = ^uint64(0)

// Nack takes a message back from the application until its delay is over. It reports whether that changed
// anything: a second nack does not, and neither does a nack of an earlier hand-over, or of a message that is
// settled.
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
	g.keep(m, &f.Copy)
	m.uncounted = f.Uncounted
	if !f.Uncounted {
		g.noteFailure(now, m)
	}
	m.cause, m.note = Nacked, f.Note
	if f.Uncounted {
		m.cause = Snoozed
	}
	if g.o.Drops && !f.Uncounted {
		g.drop(m)
	}
	g.wait(now, m, add(now, f.Delay))
	return d, true, nil
}

// adopt adds a nacked message that is not in the table: it was forgotten, or received elsewhere.
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
	m := g.entry(p, at, f.Copy.Total).message(f.ID.Index)
	if m.busy > 0 || m.state == Settled {
		return nil
	}
	m.move(Held)
	m.id, m.epoch, m.count, m.delivered, m.hand = f.Copy.Object, 0, f.Copy.Count, true, f.Hand
	return m
}

// noteFailure notes that the application failed on a message.
func (g *Group) noteFailure(now time.Duration, m *message) {
	g.outcomes.add(true)
	if m.firstFailed == 0 {
		m.firstFailed = now
	}
}

// wait makes a message wait until due.
func (g *Group) wait(now time.Duration, m *message, due time.Duration) {
	if m.state == Held && m.delivered && !m.undecided {
		m.had = now - m.since
	}
	m.move(Waiting)
	m.waits, m.timeout, m.due, m.undecided = now, 0, due, false
	g.clock.Set(&m.timer, due)
}

// StartTimeout starts the ack timeout of a hand-over.
func (g *Group) StartTimeout(now time.Duration, id ID, hand uint64, timeout time.Duration) {
	m, _ := g.find(id)
	if m != nil && m.isWith(hand) {
		m.timeout = max(1, timeout)
		g.clock.Set(&m.timer, add(now, timeout))
	}
}

// Touch restarts the ack timeout of a message. It reports whether the application has the message.
func (g *Group) Touch(now time.Duration, id ID, hand uint64) (bool, error) {
	m, err := g.find(id)
	if m == nil || !m.isWith(hand) {
		return false, err
	}
	if m.timeout > 0 {
		g.clock.Set(&m.timer, add(now, m.timeout))
	}
	return true, nil
}

// ackTimeoutOver takes a message back from the application when its ack timeout is over.
func (g *Group) ackTimeoutOver(now time.Duration, m *message) {
	if m.undecided {
		g.forget(now, m)
		return
	}
	d := g.delivery(m)
	if d.Last && m.body != nil && !m.isStale() {
		g.out.GiveUps = append(g.out.GiveUps, d)
		return
	}
	g.out.TimedOut = append(g.out.TimedOut, d)
	g.noteFailure(now, m)
	if g.o.Drops {
		g.drop(m)
	}
	m.cause = TimedOut
	g.wait(now, m, now)
}

// RedeliverNow makes all waiting messages due, and returns their number.
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

// GiveUpStale takes a stale message back from an application that does not want it while another consumer may have it.
// If the message is still this consumer's, the broker sends it again: by itself or, if the lost connection was another
// partition's, after a request. Its count is then d.Count, if that is larger than the group's.
func (g *Group) GiveUpStale(now time.Duration, d Delivery) {
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

// Recall corrects a hand-over that Take or Arrive has just made, since a log of attempts has a newer state: the message
// was delivered tries times before, and must not be handed out for wait. If wait is positive, the message is taken
// back, and Recall returns false.
func (g *Group) Recall(now time.Duration, d *Delivery, tries uint32, wait time.Duration) (stands bool) {
	m, _ := g.find(d.ID)
	if m == nil || !m.isWith(d.Hand) {
		return true
	}
	m.count = max(m.count, tries)
	d.Count, d.Last = m.count, g.o.isLast(m.count)
	if wait > 0 {
		m.uncounted, m.cause = true, d.Cause
		g.wait(now, m, add(now, wait))
	}
	return wait <= 0
}

// PutBack takes back a message that was handed out but never reached the application. The next Take returns it. If a
// later message came first, its cumulative acknowledgement would lose this message.
func (g *Group) PutBack(now time.Duration, d Delivery) {
	m, _ := g.find(d.ID)
	if m == nil || !m.isWith(d.Hand) {
		return
	}
	m.uncounted, m.cause = true, d.Cause
	if m.body == nil && d.Body != nil { // one message more than the limit allows
		m.body = d.Body
		m.entry.kept++
	}
	g.wait(now, m, now)
	if m.busy == 0 {
		g.clock.Stop(&m.timer)
		g.delayOver(now, m)
	}
	if m.state == Ready {
		g.ready = slices.DeleteFunc(g.ready, func(other *message) bool { return other == m })
		g.ready = slices.Insert(g.ready, 0, m)
		g.newsTurn = false
	}
}
