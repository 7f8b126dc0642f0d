package ledger

import (
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

const (
	// What was asked for and did not come went to another consumer, or is gone. Where the broker rewinds there is no count at
	// the broker to fall back on, so the own one is kept for longer than a dead link may take to be noticed.
	patienceShared, triesShared   = 6 * time.Second, 1
	patienceRewinds, triesRewinds = 30 * time.Second, 4
	// answer is how long the broker may take for an answer before an empty queue shows that there is none.
	answer = 4 * time.Second
)

// patience is for how long a request is not repeated.
func (l *Ledger) patience() time.Duration {
	if l.o.Rewinds {
		return patienceRewinds + l.o.AskDelay
	}
	return patienceShared + l.o.AskDelay
}

// Find returns the hand-over of a message that the application has; current is false if it has another one or none, and
// known if the Ledger does not know the message.
func (l *Ledger) Find(n Name) (d Delivery, current, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ref, e, r := l.find(n)
	if r == nil {
		return d, false, false
	}
	d = Delivery{Consumer: e.stream().consumer, Ref: ref, Count: r.count, Hand: r.hand, id: r.id}
	return d, isWith(r, n), true
}

// isWith reports whether the application has a message by the hand-over that n names.
func isWith(r *record, n Name) bool {
	return r.state == held && !r.isStale(n.ID) && (!n.HasHand || n.Hand == r.hand)
}

// Adopt enters a message that the application has although the Ledger does not know it. It waits at the broker, which alone
// can say whether it is settled.
func (l *Ledger) Adopt(n Name, consumer pulsar.Consumer, count uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, _, r := l.table.find(n); r != nil || l.closed {
		return
	}
	s := l.table.latest
	if n.Topic != "" || s == nil || len(l.table.streams) > 1 {
		if s = l.table.streams[n.Topic]; s == nil {
			s = l.table.stream(n.Topic, consumer)
		}
	}
	ref, e := l.table.add(n.ID, s)
	r := l.table.enter(ref, e, n.ID, count)
	r.flags |= doubtful
}

// isCurrent reports whether the application has a message by hand-over d.
func (l *Ledger) isCurrent(r *record, d Delivery) bool {
	return r != nil && r.state == held && r.id == d.id && r.hand == d.Hand && !l.closed
}

// Why says why a message waits.
type Why uint8

const (
	Failed  Why = iota // the application failed on it
	Leaving            // likewise, and it is to be published elsewhere
	GivenUp            // it is to be published elsewhere, and the application did not have it this time
)

// Nack starts the delay of a message that the application has by hand-over d, unless it was settled or timed out meanwhile.
// msg is nil if there is no more than its id; one that is to be published elsewhere is kept here wherever it is to wait. Nack
// reports whether it is kept.
func (l *Ledger) Nack(d Delivery, delay time.Duration, msg pulsar.Message, why Why) (kept bool) {
	_, _, kept = l.nack(d, delay, msg, why)
	return kept
}

// Fail is Nack of a message that the application failed on. It returns how the message stood, and whether the application had
// it.
func (l *Ledger) Fail(d Delivery, delay time.Duration, msg pulsar.Message) (s Settling, had bool) {
	s, had, _ = l.nack(d, delay, msg, Failed)
	return s, had
}

func (l *Ledger) nack(d Delivery, delay time.Duration, msg pulsar.Message, why Why) (s Settling, had, kept bool) {
	delay = max(0, delay)
	l.mu.Lock()
	t, ref := &l.table, d.Ref
	e, r := t.at(ref)
	if !l.isCurrent(r, d) {
		l.mu.Unlock()
		return s, false, false
	}
	s = Settling{Consumer: e.stream().consumer, Topic: e.stream().topic, ID: r.id, Attempts: attempts(r), Since: l.since(ref)}
	l.waitsFor(ref, delay, Nacked)
	if r.flags.has(timed) {
		l.timeouts.Untrack(uint64(ref))
		r.flags &^= timed
	}
	t.move(ref, r, waiting)
	if why == GivenUp {
		r.flags |= postponed
	}
	if msg != nil && !r.flags.has(doubtful) && (why != Failed || l.o.KeepBatches && e.isBatch() || l.o.KeepSingles && !e.isBatch()) {
		kept = t.keep(ref, e, msg, why != Failed)
	}
	var a ask
	if l.o.Ahead > 0 && !t.shelf.has(ref) {
		if delay > l.o.Ahead {
			r.flags |= ahead
			delay -= l.o.Ahead
		} else {
			a = l.askAhead(ref, e, r)
		}
	}
	l.nacks.TrackFor(uint64(ref), delay)
	l.mu.Unlock()
	l.send(a)
	return s, true, kept
}

// Hold starts the ack timeout of a message that the application has taken, unless it settled it already.
func (l *Ledger) Hold(d Delivery, timeout time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, r := l.table.at(d.Ref)
	if !l.isCurrent(r, d) {
		return
	}
	r.flags |= timed
	l.timeouts.TrackFor(uint64(d.Ref), timeout)
	l.timesOut(d.Ref, timeout)
	if l.isLast(r) {
		l.table.keep(d.Ref, e, d.Message, false)
	}
}

// isLast reports whether a message is given up when the application does not settle it this time.
func (l *Ledger) isLast(r *record) bool {
	return l.o.MaxDeliveries > 0 && uint64(r.count)+1 >= uint64(l.o.MaxDeliveries)
}

// Touch restarts the ack timeout of a message, and reports whether the application has it.
func (l *Ledger) Touch(n Name) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	ref, _, r := l.find(n)
	if r == nil || !isWith(r, n) {
		return false
	}
	if r.flags.has(timed) { // else it is about to be
		l.timesOut(ref, 0)
		return l.timeouts.Touch(uint64(ref))
	}
	return true
}

// AckDeadline returns when a message's ack timeout is over, or zero if none runs.
func (l *Ledger) AckDeadline(d Delivery) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, r := l.table.at(d.Ref); !l.isCurrent(r, d) {
		return time.Time{}
	}
	left, ok := l.timeouts.Left(uint64(d.Ref))
	if !ok {
		return time.Time{}
	}
	return time.Now().Add(left)
}

// ask is a request for a message; consumer is nil for none.
type ask struct {
	consumer pulsar.Consumer
	topic    string
	id       pulsar.MessageID
}

func (l *Ledger) send(asks ...ask) {
	for _, a := range asks {
		if a.consumer != nil {
			l.o.Ask(a.consumer, a.topic, a.id)
		}
	}
}

// delaysOver acts for messages whose delay is over, or whose request was not answered in time.
func (l *Ledger) delaysOver(keys []uint64) {
	asks := make([]ask, 0, len(keys))
	l.mu.Lock()
	for _, key := range keys {
		ref := Ref(key)
		e, r := l.table.at(ref)
		if r == nil || l.nacks.Tracks(key) {
			continue // it moved on since
		}
		switch r.state {
		case waiting:
			if r.flags.has(ahead) {
				r.flags &^= ahead
				asks = append(asks, l.askAhead(ref, e, r))
				l.nacks.TrackFor(key, l.o.Ahead)
				continue
			}
			asks = append(asks, l.over(ref, e, r))
		case due:
			asks = append(asks, l.ask(ref, e, r))
		case settling:
			r.flags |= overdue
		}
	}
	l.mu.Unlock()
	l.send(asks...)
	if l.hasNext.Load() {
		l.o.Wake()
	}
}

// timeoutsOver acts for messages that the application has for too long.
func (l *Ledger) timeoutsOver(keys []uint64) {
	asks := make([]ask, 0, len(keys))
	var last []Delivery
	l.mu.Lock()
	for _, key := range keys {
		ref := Ref(key)
		e, r := l.table.at(ref)
		if r == nil || !r.flags.has(timed) || l.timeouts.Tracks(key) {
			continue
		}
		switch r.state {
		case held:
			r.flags &^= timed
			if l.table.shelf.has(ref) && l.isLast(r) {
				last = append(last, Delivery{e.stream().consumer, l.table.drop(ref, e), ref, r.count, r.hand, false, r.id})
				continue
			}
			l.timedOut(ref, e, r)
			asks = append(asks, l.over(ref, e, r))
		case settling:
			r.flags |= overdue
		}
	}
	l.mu.Unlock()
	l.report()
	l.send(asks...)
	for _, d := range last {
		l.o.GiveUp(d)
	}
	if l.hasNext.Load() {
		l.o.Wake()
	}
}

// over acts for a message whose time is over: it is handed out from here, or asked for. The caller holds mu.
func (l *Ledger) over(ref Ref, e *entry, r *record) ask {
	t := &l.table
	if t.shelf.has(ref) {
		if !l.goesAlone(ref, e, r) {
			l.makeReady(ref, r)
			return ask{}
		}
		t.drop(ref, e)
	}
	t.move(ref, r, due)
	return l.ask(ref, e, r)
}

// makeReady has Next hand a message out. The caller holds mu.
func (l *Ledger) makeReady(ref Ref, r *record) {
	l.table.move(ref, r, ready)
	l.table.ready = append(l.table.ready, ref)
	l.hasNext.Store(true)
}

// goesAlone reports whether the broker can send a message of a batch back by itself, to a consumer that may do better.
func (l *Ledger) goesAlone(ref Ref, e *entry, r *record) bool {
	if !l.o.Alone || !e.isBatch() || r.flags.has(postponed) || e.batch.seen-e.batch.acked > 1 {
		return false
	}
	s := e.stream()
	return !(s.current == ref.slot() && e.batch.seen < e.size()) && e.batch.settled <= s.log.sure
}

// askAhead requests a message that waits, unless a copy of it is here. The caller holds mu.
func (l *Ledger) askAhead(ref Ref, e *entry, r *record) ask {
	if l.table.shelf.has(ref) {
		return ask{}
	}
	l.table.asked[ref.slot()] = request{at: time.Now(), tries: 1}
	return l.request(ref, e, r)
}

// ask requests a message that is due, unless its answer may be on its way, and looks after it again. The caller holds mu.
func (l *Ledger) ask(ref Ref, e *entry, r *record) (a ask) {
	t, s := &l.table, e.stream()
	last := t.asked[ref.slot()]
	tries := uint8(triesShared)
	if l.o.Rewinds {
		tries = triesRewinds
	}
	switch {
	case s.log.lost || s.inactive: // the broker sends it to whoever it is for
	case l.mayCome(s, &last):
		t.asked[ref.slot()] = last
	case l.o.Rewinds && l.mayCome(s, &s.run.asked), last.tries == 0 && t.isComing(ref, e):
	case last.tries > tries, last.tries > 0 && r.flags.has(doubtful):
		t.forget(ref, e, r)
		return a
	default:
		now := time.Now()
		t.asked[ref.slot()] = request{at: now, tries: last.tries + 1}
		s.run.asked = request{at: now}
		a = l.request(ref, e, r)
	}
	l.nacks.TrackFor(uint64(ref), l.patience())
	return a
}

// mayCome reports whether the answer to a request may be on its way: until a queue of deliveries was taken after it was
// surely sent, or nothing was on its way at all. The caller holds mu.
func (l *Ledger) mayCome(s *stream, r *request) bool {
	switch {
	case r.at.IsZero() || l.idleAt.Sub(r.at) > l.o.AskDelay+answer:
		return false
	case time.Since(r.at) < l.patience():
		return true
	case r.taken == 0:
		r.taken = s.log.taken + 2*l.table.queue(s) + uint64(s.unsettled)
	}
	return s.log.taken < r.taken
}

// asking is how many marks there are until a request has surely been sent.
func (l *Ledger) asking() uint8 { return uint8(min(255, 2+l.o.AskDelay/l.o.SendDelay)) }

// request notes that copies may come. The caller holds mu.
func (l *Ledger) request(ref Ref, e *entry, r *record) ask {
	s := e.stream()
	e.flags |= repeated
	s.log.emptied = 0
	if l.o.Rewinds || !l.o.Signals {
		s.log.asking = l.asking()
		l.unsent(s)
	}
	return ask{s.consumer, s.topic, l.table.newest(ref, r)}
}
