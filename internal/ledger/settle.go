package ledger

import (
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Settling is a message on its way to being acknowledged, or published elsewhere and then acknowledged.
type Settling struct {
	Ref      Ref
	Consumer pulsar.Consumer
	ID       pulsar.MessageID // of the newest delivery
	ToAck    pulsar.MessageID // what to acknowledge: ID, or the whole entry unless it leaves
	Message  pulsar.Message   // as it was delivered; nil if it is not kept
	Count    uint32           // how often the application had it before
	Attempts uint32           // how often it had it, this time included if it has it
	Topic    string
	Since    time.Duration // when the application got it, by Ledger.Now, if it has it still; else NotHad
	Had      time.Duration // for how long the application had it, if that is known and it waits

	// Undecided tells that the acknowledgement may be taken back, as by a transaction that is aborted. The message is
	// forgotten by Settled, and is a new one if it comes again.
	Undecided bool
	// Leaves tells that the message is published elsewhere, since the application failed on it.
	Leaves bool
	// Late tells that another settled the message meanwhile; set by Settled.
	Late bool

	entry  entryID
	stream *stream
	second bool // it began while another settled the message
}

// Standing says how a message stands with those who want to settle it.
type Standing uint8

const (
	Unknown Standing = iota
	Unsettled
	Busy    // being settled by another too
	Settled // before, or now: as long as there is more of its batch nothing else is to be done. Then it is described to those who observe
)

// Settle begins to settle a message that is Unsettled or Busy, of which it fills s: Settled or NotSettled must follow. Meanwhile the
// message is not handed out. Nobody waits for anybody: of several who settle a message the first one that succeeds does so. One that is
// Busy is not begun to be settled by publishing it, nor by an earlier hand-over.
func (l *Ledger) Settle(n Name, s *Settling) Standing {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.settleLocked(n, s)
}

func (l *Ledger) settleLocked(n Name, s *Settling) Standing {
	ref, e, r := l.find(n)
	standing := Unsettled
	switch {
	case r == nil && l.table.isSettled(n):
		return Settled
	case r == nil || e.stream().gone || isWhole(e, n.ID):
		return Unknown
	case r.state == acked:
		return Settled
	case s.Leaves && r.state == inFlight && n.HasHand && n.Hand != r.hand: // the application has it by a later hand-over, which may succeed
		return Unknown
	case r.flags.has(busy):
		if standing = Busy; s.Leaves {
			return Busy
		}
	}
	if l.isNoted(e, r, s) {
		if l.o.Observed {
			l.describe(ref, e, r, s)
		}
		e.flags |= ackWhole
		l.outcome(false)
		l.settled(ref, e, r)
		return Settled
	}
	l.describe(ref, e, r, s)
	l.begin(r, s)
	return standing
}

// SettleWaiting begins to settle a message that waits here since hand-over d, be it ready by now; ok is false for any other.
func (l *Ledger) SettleWaiting(d Delivery, s *Settling) (ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, r := l.table.at(d.Ref)
	if r == nil || r.state != waiting && r.state != ready || r.hand != d.Hand || !r.isKept() || r.flags.has(busy) || l.table.entries.At(d.Ref.slot()).Key != entryOf(d.ID) {
		return false
	}
	l.describe(d.Ref, e, r, s)
	l.begin(r, s)
	return true
}

// begin notes that a message is being settled. The caller holds mu.
func (l *Ledger) begin(r *record, s *Settling) {
	s.second = r.flags.has(busy)
	if r.flags |= busy; !s.Leaves {
		s.stream.acks++
	}
}

// describe says what there is to say of a message: what takes longer only if somebody asks for it. The caller holds mu.
func (l *Ledger) describe(ref Ref, e *entry, r *record, s *Settling) {
	s.entry, s.stream = l.table.entries.At(ref.slot()).Key, e.stream()
	s.Ref, s.Consumer, s.ID, s.Topic = ref, s.stream.consumer, l.table.newest(ref, r), s.stream.topic
	if s.ToAck = s.ID; l.o.WholeBatches && !s.Leaves {
		s.ToAck = toAck(e, s.ID, e.batch.settledForUpstream()+1)
	}
	s.Count, s.Attempts = r.count, r.count
	if !r.flags.has(uncounted) {
		s.Attempts += min(1, ^r.count)
	}
	if !s.Leaves && !l.o.Observed {
		return
	}
	s.Message = r.msg()
	s.Since = NotHad
	switch x := l.table.timing(ref, e); {
	case x == nil || !x.known:
	case x.waiting:
		s.Had = x.had
	default:
		s.Since = x.had
	}
}

// Settled ends what Settle began, if the message was acknowledged. It returns an id if that is to be acknowledged as well: of a
// delivery that came meanwhile, or of the whole entry. AckedAgain must follow then.
func (l *Ledger) Settled(s *Settling) (again pulsar.MessageID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, ref := &l.table, s.Ref
	for l.offer != nil && l.offer.d.Ref == ref { // since another's acknowledgement failed
		l.withdraw()
	}
	e, r := l.ends(s)
	switch {
	case r == nil:
		s.Late = true
		return nil
	case s.Undecided:
		l.untrack(ref, r)
		b, someNoted := e.batch, e.flags.has(ackWhole) && s.ToAck == s.ID
		if t.forget(ref, e, r); l.o.WholeBatches && b.records != nil {
			b.undecided++
			b.records[ref.index()].flags = undecided
			if someNoted && b.settledForUpstream() >= b.total { // since the last sibling was noted meanwhile
				again = wholeOf(s.ID)
			}
		}
		return again
	}
	if e.flags.has(ackWhole) && s.ToAck == s.ID { // else there is one delivery, or the whole batch is acknowledged
		if id := toAck(e, t.newest(ref, r), e.batch.settledForUpstream()+1); id != s.ID {
			again = id
		}
	}
	if r.state == inFlight {
		l.outcome(s.Leaves)
	}
	l.settled(ref, e, r)
	if again != nil && s.stream.stage(s.entry) > unacked {
		t.restage(s.stream, s.entry, open)
	}
	return again
}

// NotSettled ends what Settle began, if the message could not be acknowledged: it is where it was before.
func (l *Ledger) NotSettled(s *Settling) {
	l.mu.Lock()
	switch e, r := l.ends(s); {
	case r == nil || !r.flags.has(busy):
	case e.stream().gone: // nobody is left to settle it with
		l.untrack(s.Ref, r)
		l.table.forget(s.Ref, e, r)
	default:
		if e.flags |= ackWhole; !s.second {
			l.unsettle(s.Ref, r)
		}
	}
	l.unlockAndNotify()
}

// ends returns the message that is being settled, or nil if another settled it meanwhile, so that its place may be another's, or if all
// was forgotten. The caller holds mu.
func (l *Ledger) ends(s *Settling) (*entry, *record) {
	if !s.Leaves {
		s.stream.acks--
	}
	e, r := l.table.at(s.Ref)
	if r == nil || r.state == acked || e.stream() != s.stream || l.table.entries.At(s.Ref.slot()).Key != s.entry {
		return nil, nil
	}
	return e, r
}

// AckedAgain notes that a settled message was acknowledged once more, or could not be. Its entry is remembered as if it were settled now: many
// acknowledgements may have been in line before it. If it could not be and is to be tried again, AckedAgain returns what to acknowledge
// then, and must follow once more.
func (l *Ledger) AckedAgain(n Name, err error, try bool) (again pulsar.MessageID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isAcking(n) {
		return nil // it was forgotten meanwhile
	}
	t, s, id := &l.table, l.table.streams[n.Topic], entryOf(n.ID)
	ref, e, r := t.find(n)
	switch {
	case err != nil && r != nil:
		e.flags |= ackWhole
	case err != nil:
		t.restage(s, id, open)
		n.ID = wholeOf(n.ID)
	case r != nil:
		l.startRounds()
		t.settleEntry(ref.slot(), e)
	case n.ID.BatchSize() <= 1: // else one of the whole entry follows
		l.startRounds()
		t.restage(s, id, recent)
	}
	if err == nil || !try {
		return nil
	}
	return n.ID
}

// IsAcking reports whether AckedAgain has to follow still: not after everything was forgotten, or an operator has moved the cursor. An
// earlier delivery of a batch would acknowledge what was settled of it before that.
func (l *Ledger) IsAcking(n Name) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isAcking(n)
}

func (l *Ledger) isAcking(n Name) bool {
	if _, e, r := l.table.find(n); r != nil {
		return r.state == acked && (r.id() == n.ID || !e.isBatch())
	}
	return l.table.isSettled(n)
}

// unsettle notes that the first of those that settle a message failed, though another may settle it still. The message is where it was
// before, or further if its time is over: then the tracker tells that once more. The caller holds mu.
func (l *Ledger) unsettle(ref Ref, r *record) {
	r.flags &^= busy
	switch key := uint64(ref); {
	case r.state == ready, r.state == due && r.isKept(): // what was asked for has come meanwhile
		l.nacks.Untrack(key)
		l.makeReady(ref, r)
	case (r.state == due || r.state == waiting) && !l.nacks.Tracks(key):
		l.nacks.TrackFor(key, 0)
	case r.state == inFlight && r.flags.has(timed) && !l.timeouts.Tracks(key):
		l.timeouts.TrackFor(key, 0)
	}
}

// settled marks a message settled. The caller holds mu.
func (l *Ledger) settled(ref Ref, e *entry, r *record) {
	t, s := &l.table, e.stream()
	if l.o.Calls.Settled != nil {
		key := t.entries.At(ref.slot()).Key
		l.o.Calls.Settled(s.topic, key.ledger, key.entry, ref.index())
	}
	l.untrack(ref, r)
	t.leave(ref, e, r)
	r.flags &= ofEntry
	t.move(r, acked)
	s.unsettled--
	l.startRounds()
	if e.isBatch() {
		e.batch.acked++
		e.batch.settled = s.past.rounds
	}
	if e.isSettled() {
		t.unlink(s, e)
		t.settleEntry(ref.slot(), e)
	}
}
