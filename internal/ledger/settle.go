package ledger

import (
	"context"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Settling is a message on its way to being acknowledged, or published elsewhere and then acknowledged.
type Settling struct {
	Ref      Ref
	Consumer pulsar.Consumer
	ID       pulsar.MessageID // of the newest delivery: what to acknowledge
	Count    uint32           // how often the application had it before
	Attempts uint32           // how often it had it, this time included if it has it
	Topic    string
	Since    time.Duration // when the application got it, by Ledger.Now; less by what it waited since

	// Undecided tells that the acknowledgement may be taken back, as by a transaction that is aborted. The message is
	// forgotten by Settled, and is a new one if it comes again.
	Undecided bool

	entry entryID
	epoch uint64
}

// Standing says how a message stands with those who want to settle it.
type Standing uint8

const (
	Unknown Standing = iota
	Unsettled
	Busy // being settled by another
	Settled
)

// Settle begins to settle a message that is Unsettled, of which it fills s: Settled or NotSettled must follow. Meanwhile the message is
// not handed out. While another call settles it, Settle waits until that is over or a context done.
func (l *Ledger) Settle(ctx, closed context.Context, n Name, s *Settling) (Standing, error) {
	for waited := false; ; waited = true {
		l.mu.Lock()
		standing := l.settle(n, s)
		if standing != Busy {
			l.mu.Unlock()
			if waited && standing == Unknown {
				standing = Settled // by the other, so that the Ledger let go of it
			}
			return standing, nil
		}
		over := l.settling[s.Ref]
		if over == nil {
			over = make(chan struct{})
			l.settling[s.Ref] = over
		}
		l.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
			return Busy, ctx.Err()
		case <-closed.Done():
			return Busy, nil
		}
	}
}

// TrySettle is Settle without waiting: a message may be Busy.
func (l *Ledger) TrySettle(n Name, s *Settling) Standing {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.settle(n, s)
}

// SettleWaiting begins to settle a message that waits here since hand-over d; ok is false for any other.
func (l *Ledger) SettleWaiting(d Delivery, s *Settling) (msg pulsar.Message, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, r := l.table.at(d.Ref)
	msg = l.table.shelf.messages[d.Ref].msg
	if r == nil || r.state != waiting || r.hand != d.Hand || msg == nil || l.table.entries.At(d.Ref.slot()).Key != entryOf(d.ID) {
		return nil, false
	}
	l.begin(d.Ref, e, r, s)
	return msg, true
}

func (l *Ledger) settle(n Name, s *Settling) Standing {
	ref, e, r := l.find(n)
	switch {
	case r == nil:
		return Unknown
	case r.state == settling:
		s.Ref = ref
		return Busy
	case r.state == acked:
		return Settled
	}
	l.begin(ref, e, r, s)
	return Unsettled
}

// begin notes that a message is being settled. The caller holds mu.
func (l *Ledger) begin(ref Ref, e *entry, r *record, s *Settling) {
	r.before = r.state
	l.table.move(ref, r, settling)
	l.describe(ref, e, r, s)
	s.entry, s.epoch = entryOf(s.ID), l.epoch
}

// describe says what there is to say of a message. The caller holds mu.
func (l *Ledger) describe(ref Ref, e *entry, r *record, s *Settling) {
	s.Ref = ref
	s.Consumer = e.stream().consumer
	s.ID = l.table.newest(ref, r)
	s.Count, s.Attempts = r.count, attempts(r)
	s.Topic = e.stream().topic
	s.Since = l.since(ref, e)
}

// Settled ends what Settle began, if the message was acknowledged. It returns an id if that is to be acknowledged as well: of a
// delivery that came meanwhile, or of the whole entry. AckedAgain must follow then.
func (l *Ledger) Settled(s *Settling) (again pulsar.MessageID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, ref := &l.table, s.Ref
	e, r := l.ends(s)
	switch {
	case r == nil:
		return nil
	case s.Undecided:
		l.untrack(ref, r)
		t.forget(ref, e, r)
		return nil
	}
	if id := l.toAck(e, t.newest(ref, r), e.batch.acked+1); id != s.ID {
		again = id
		t.acking[ref.slot()]++
	}
	l.settled(ref, e, r)
	return again
}

// NotSettled ends what Settle began, if the message could not be acknowledged: it is where it was before.
func (l *Ledger) NotSettled(s *Settling) {
	var a ask
	l.mu.Lock()
	switch e, r := l.ends(s); {
	case r == nil:
	case e.stream().gone: // nobody is left to settle it with
		l.untrack(s.Ref, r)
		l.table.forget(s.Ref, e, r)
	default:
		a = l.unsettle(s.Ref, e, r)
	}
	l.unlock(a)
}

// ends returns the message that is being settled, or nil if a cumulative acknowledgement settled it meanwhile, so that its place may
// be another's, or if all was forgotten. The caller holds mu.
func (l *Ledger) ends(s *Settling) (*entry, *record) {
	item := l.table.entries.At(s.Ref.slot())
	if s.epoch != l.epoch || item == nil || item.Key != s.entry {
		return nil, nil
	}
	e, r := &item.Value, item.Value.seen(s.Ref.index())
	if r == nil || r.state != settling {
		return nil, nil
	}
	l.settlingOver(s.Ref)
	return e, r
}

// settlingOver tells those who wait for the settling of a message that it is over. The caller holds mu.
func (l *Ledger) settlingOver(ref Ref) {
	if over := l.settling[ref]; over != nil {
		close(over)
		delete(l.settling, ref)
	}
}

// AckedAgain notes that a settled message was acknowledged once more, or could not be. Its entry is remembered until the broker
// has that, as if it were settled now: many acknowledgements may have been in line before it. If it could not be and is to be tried
// again, AckedAgain returns what to acknowledge then, and must follow once more.
func (l *Ledger) AckedAgain(ref Ref, id pulsar.MessageID, err error, try bool) (again pulsar.MessageID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, slot := &l.table, ref.slot()
	if !l.isAcking(ref, id) {
		return nil // it was forgotten meanwhile
	}
	e := &t.entries.At(slot).Value
	if err != nil {
		e.flags |= refused
		if try && !e.stream().gone {
			return l.toAck(e, id, e.batch.acked)
		}
	}
	if t.acking[slot]--; t.acking[slot] == 0 {
		delete(t.acking, slot)
	}
	if s := e.stream(); e.isSettled() {
		s.log.settled++
		t.settleEntry(slot, e)
		l.unsent(s)
	}
	return nil
}

// IsAcking reports whether AckedAgain has to follow still: not after everything was forgotten, or an operator has moved the cursor.
func (l *Ledger) IsAcking(ref Ref, id pulsar.MessageID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isAcking(ref, id)
}

func (l *Ledger) isAcking(ref Ref, id pulsar.MessageID) bool {
	return l.table.acking[ref.slot()] > 0 && l.table.entries.At(ref.slot()).Key == entryOf(id)
}

// toAck returns what to acknowledge a delivery with: its id or, of a batch that is settled, the whole entry. The broker may wait for
// just that, if the batch came more than once and its messages were acknowledged by different deliveries, or if it refused one of
// them. The caller holds mu.
func (l *Ledger) toAck(e *entry, id pulsar.MessageID, acked int32) pulsar.MessageID {
	again := e.flags.has(refused) || e.flags.has(repeated) && (l.o.IndexAcks || l.o.Rewinds)
	if !again || e.batch.total == 0 || acked < e.batch.total {
		return id
	}
	return pulsar.NewMessageID(id.LedgerID(), id.EntryID(), -1, id.PartitionIdx())
}

// unsettle puts a message back to where it was before it was to be settled. The caller holds mu.
func (l *Ledger) unsettle(ref Ref, e *entry, r *record) (a ask) {
	t := &l.table
	e.flags |= refused
	was := r.flags.has(overdue)
	r.flags &^= overdue
	t.move(ref, r, r.before)
	switch {
	case r.state == ready, r.state == due && t.shelf.has(ref): // what was asked for has come meanwhile
		l.nacks.Untrack(uint64(ref))
		l.makeReady(ref, r)
	case r.state == due && was:
		a = l.ask(ref, e, r)
	case was:
		if r.state == held {
			l.timedOut(ref, e, r)
		}
		r.flags &^= timed
		a = l.over(ref, e, r)
	}
	return a
}

// settled marks a message settled. The caller holds mu.
func (l *Ledger) settled(ref Ref, e *entry, r *record) {
	t, s := &l.table, e.stream()
	l.untrack(ref, r)
	t.untime(ref, e)
	t.drop(ref, e)
	r.flags &= ofEntry
	t.move(ref, r, acked)
	s.unsettled--
	s.log.settled++
	if e.isBatch() {
		e.batch.acked++
		e.batch.settled = s.log.settled
	}
	l.unsent(s)
	if e.isSettled() {
		t.unlink(s, e)
		t.settleEntry(ref.slot(), e)
	}
}
