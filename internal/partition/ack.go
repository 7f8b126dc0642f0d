package partition

import "time"

// Ack is an acknowledgement under way, or a publication elsewhere that ends with one.
type Ack struct {
	Delivery      // the message, as its newest delivery
	Whole    bool // acknowledge the whole entry of Object
	Late     bool // another call has settled the message
	message  *message
}

// Again asks the caller to acknowledge a delivery once more. No call of the application waits for it.
type Again struct {
	Source any
	Topic  string
	Object any  // an id
	Whole  bool // acknowledge the whole entry of Object
}

func (m *message) again(object any) Again {
	p, a := m.entry.partition, &m.entry.ack
	return Again{p.source, p.topic, object, a.isComplete() && a.needsWhole()}
}

// BeginAck begins to settle a message, and describes it in a. The message is not handed out before EndAck. Do not call
// EndAck in two cases. If a.Late is set, the message is settled already: report success. If a.Object is nil, the message
// is not in the table: pass the acknowledgement on to upstream, by a.Source if that is set.
func (g *Group) BeginAck(id ID, a *Ack) error {
	m, err := g.find(id)
	if m == nil {
		if p, _ := g.partitionOf(id); p != nil {
			a.Source, a.Late = p.source, p.settled.has(id.position(), id.Index)
		}
		return err
	}
	if m.state == Settled {
		a.Late = true
		return nil
	}
	m.busy++
	m.entry.busy++
	g.describe(m, &a.Delivery)
	a.Whole, a.message = m.entry.ack.isLast() && m.entry.ack.needsWhole(), m
	return nil
}

// Outcome is how an acknowledgement ended.
type Outcome uint8

const (
	Done      Outcome = iota // upstream took it
	Moved                    // as Done, after the message was published elsewhere: the application failed on it
	Failed                   // upstream did not take it, and the message keeps its state
	Undecided                // a transaction decides: if it is aborted, the broker sends the message again
)

// EndAck reports how the acknowledgement of BeginAck ended. If again is not nil, the caller acknowledges that, too: a
// newer delivery came during the call, or the message completed an entry that came more than once.
func (g *Group) EndAck(now time.Duration, a *Ack, outcome Outcome) (again *Again) {
	m := a.message
	m.busy--
	if m.entry == nil {
		return nil // it was forgotten
	}
	m.entry.busy--
	defer g.finishEntry(now, m.entry)
	if m.state == Settled { // by another call
		a.Late = true
		return nil
	}
	switch outcome {
	case Failed:
		g.resume(now, m)
	case Undecided:
		g.holdUndecided(now, m)
	case Done, Moved:
		return g.settleAs(now, a, outcome == Moved)
	}
	return nil
}

// settleAs settles the message of an acknowledgement. A newer delivery is acknowledged, too, since upstream ignores the
// acknowledgement of a chunked message after a request for it.
func (g *Group) settleAs(now time.Duration, a *Ack, failed bool) (again *Again) {
	m, of := a.message, &a.message.entry.ack
	g.settle(now, m, failed)
	if m.id != a.Object || of.isComplete() && of.needsWhole() && !a.Whole {
		x := m.again(m.id)
		return &x
	}
	return nil
}

// resume lets a message whose acknowledgement failed come again when its time is over.
func (g *Group) resume(now time.Duration, m *message) {
	if m.busy > 0 {
		return
	}
	switch hadTimer := m.state == Waiting || m.timeout > 0 || m.undecided; {
	case m.state == Ready:
		g.makeReady(now, m)
	case m.state == Asked:
		g.ask(now, m) // the request may have been given up
	case hadTimer && !m.timer.IsSet(): // it went off during the call
		g.clock.Set(&m.timer, now)
	}
}

// undecidedTime is how long a transaction may take. After it, the messages of the transaction are forgotten: in all
// likelihood the transaction was committed.
const undecidedTime = time.Hour

// holdUndecided notes that a transaction decides about a message. The message stays in the table for undecidedTime, so
// that its redelivery count goes on after an abort.
func (g *Group) holdUndecided(now time.Duration, m *message) {
	g.drop(m)
	m.move(Held)
	m.undecided = true
	g.clock.Set(&m.timer, now+undecidedTime)
}

// settle notes that a message is acknowledged. The caller calls finishEntry.
func (g *Group) settle(now time.Duration, m *message, failed bool) {
	if m.state == Held {
		g.outcomes.add(failed)
	}
	if g.o.Reports {
		d := g.delivery(m)
		d.Body = nil
		g.out.Settled = append(g.out.Settled, d)
	}
	g.clock.Stop(&m.timer)
	g.drop(m)
	m.move(Settled)
	a := &m.entry.ack
	a.settled++
	a.settledAt, a.settledIn = now, g.epoch
}

// finishEntry removes an entry from the table if all its messages that came are settled.
func (g *Group) finishEntry(now time.Duration, e *entry) {
	p := e.partition
	if e.unsettled() > 0 || e.busy > 0 {
		return
	}
	switch {
	case e.ack.isComplete():
		g.noteSettled(now, p, e.at)
	case e == p.current && e.in[Settled] > 0: // more messages of it may be on their way
		return
	case e.in[Settled] > 0:
		p.settled.addPart(e.at, e.settledIndexes())
	}
	if e == p.current {
		p.current = nil
	}
	g.stopRequest(e)
	for m := range e.all {
		p.in[m.state]--
	}
	delete(p.entries, e.at)
	g.spare = e
}

// noteSettled notes that an entry is settled, and that its acknowledgement is on its way.
func (g *Group) noteSettled(now time.Duration, p *Partition, at position) {
	p.settled.add(at)
	if !p.settled.timer.IsSet() {
		g.clock.Set(&p.settled.timer, now+g.o.AckedAfter)
	}
}

// SettleEntry settles all messages of an entry that was acknowledged whole.
func (g *Group) SettleEntry(now time.Duration, id ID) error {
	p, err := g.partitionOf(id)
	if p == nil {
		return err
	}
	if e := p.entryAt(id.position()); e != nil {
		for m := range e.all {
			if m.isOpen() {
				g.settle(now, m, false)
			}
		}
		e.ack.settled = e.ack.total
		g.finishEntry(now, e)
	}
	return nil
}

// Upto returns the delivery to acknowledge cumulatively. For a message that is not in the table, only Source is set, if
// the partition is known.
func (g *Group) Upto(id ID) (d Delivery, err error) {
	m, err := g.find(id)
	if m == nil {
		if p, _ := g.partitionOf(id); p != nil {
			d.Source = p.source
		}
		return d, err
	}
	return g.delivery(m), nil
}

// SettleUpto settles a message and all earlier ones of its partition, after a cumulative acknowledgement. It calls
// settled for each, unless settled is nil. If again is not nil, the caller acknowledges that, too: the message completed
// an entry that came more than once.
func (g *Group) SettleUpto(now time.Duration, id ID, settled func(Delivery)) (again *Again, err error) {
	p, err := g.partitionOf(id)
	if p == nil {
		return nil, err
	}
	to := id.position()
	for at, e := range p.entries {
		if to.before(at) {
			continue
		}
		for m := range e.all {
			if m.isOpen() && (at != to || id.Index < 0 || m.index <= id.Index) {
				if settled != nil {
					settled(g.delivery(m))
				}
				g.settle(now, m, false)
				if x := m.again(m.id); x.Whole && at == to {
					again = &x
				}
			}
		}
		g.finishEntry(now, e)
	}
	return again, nil
}

// forget makes a message unseen.
func (g *Group) forget(now time.Duration, m *message) {
	e := m.entry
	g.forgetMessage(m)
	g.finishEntry(now, e)
}

func (g *Group) forgetMessage(m *message) {
	e := m.entry
	g.clock.Stop(&m.timer)
	g.drop(m)
	m.move(Unseen)
	e.messages[m.index] = nil
	e.in[Unseen]--
	e.partition.in[Unseen]--
	m.entry = nil
}
