package ledger

import (
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// log remembers the settled entries of a stream for as long as copies of them may come: in the inner consumer's queue, in the
// broker's answer to a request, after a reconnect that lost the acknowledgement. Deliveries tell when that is over; no clock
// does, since an application may need an hour for a queue.
//
// A clock tells one thing alone: when the inner consumer has surely sent what it groups. A mark is made every
// Options.SendDelay while there is something unsent; what was settled before the mark before it is at the broker. From then on no
// copy of it is sent, and those that are on their way have come when a queue of deliveries was taken.
type log struct {
	ring

	taken   uint64 // deliveries of the stream
	settled uint64 // messages of the stream, and acknowledgements once more
	marked  uint64 // settled at the last mark
	sure    uint64 // the broker has the acknowledgements of so many
	passed  uint64 // and no copies of so many are on their way
	marks   []mark // what became sure and has not passed
	emptied uint64 // settled when nothing was on its way, if nothing was asked for since

	asking uint8  // marks until a request that rewinds has surely been sent
	answer uint64 // copies of anything may come until so many were taken, since the broker rewinds
	again  uint64 // likewise, since a connection was lost and so were acknowledgements
	lost   bool   // its connection, or another's, and nothing was received since
	safe   uint64 // the broker had the acknowledgements of so many before
	batch  int32  // size of the largest
}

// mark says that no copies of what was settled are on their way once so many were taken.
type mark struct{ settled, taken uint64 }

// queue is how many deliveries may be between the broker and the Ledger.
func (t *table) queue(s *stream) uint64 { return uint64(t.o.Queue) + uint64(s.log.batch) }

// settleEntry lets go of an entry that has nothing unsettled, or remembers it.
func (t *table) settleEntry(slot uint32, e *entry) {
	s := e.stream()
	switch {
	case !e.isSettled():
		return
	case e.isBatch() && s.current == slot && e.batch.seen < e.size(): // more of it is about to arrive
		return
	case s.gone:
		t.release(slot, e)
		return
	case e.flags.has(logged):
		s.log.strike(e.prev)
	}
	s.notPartly(slot)
	e.flags |= logged
	e.prev = s.log.push(settledEntry{slot, s.log.settled})
	t.prune(s)
}

// prune forgets what no copies can come of, but for what is being acknowledged once more: it is remembered until that is over, and
// stays here, where it is found if an operator moves the cursor.
func (t *table) prune(s *stream) {
	l := &s.log
	if l.lost || l.taken < l.again {
		return
	}
	for len(l.marks) > 0 && l.marks[0].taken <= l.taken {
		l.passed, l.marks = l.marks[0].settled, l.marks[1:]
	}
	rewinding := l.asking > 0 || l.taken < l.answer
	for l.n > 0 {
		slot, settled := l.at(0).slot, l.at(0).settled
		copies := rewinding || t.entries.At(slot).Value.flags.has(repeated)
		sure := settled <= l.sure || uint64(l.n) > uint64(t.o.AckGroup.Size)+2*t.queue(s) // more than a dead link had
		if settled > l.passed && (copies || !sure) || len(t.acking) > 0 && t.acking[slot] > 0 {
			return
		}
		t.pop(s)
	}
}

// pop lets go of the first entry, unless it is being acknowledged once more.
func (t *table) pop(s *stream) {
	l := &s.log
	slot := l.at(0).slot
	l.strike(l.first)
	e := &t.entries.At(slot).Value
	e.flags &^= logged
	switch {
	case t.acking[slot] > 0:
	case t.isPart(e) && !s.gone:
		if s.partly = append(s.partly, slot); len(s.partly) > maxPartly {
			t.releasePart(s)
		}
	default:
		t.release(slot, e)
	}
}

// maxPartly is how many batches of a stream are remembered in part. There is one for each connection that was lost, and for each
// batch whose rest another consumer had.
const maxPartly = 16

// isPart reports whether the broker waits for more of a batch to be acknowledged. What was acknowledged here has not reached it then,
// so the batch comes again, if no other consumer acknowledges it: until the next connection at the latest, which has to be told.
func (t *table) isPart(e *entry) bool {
	return e.isBatch() && t.o.Signals && e.batch.acked < e.batch.total
}

// releasePart lets go of the batch that is remembered in part for longest.
func (t *table) releasePart(s *stream) { t.release(s.partly[0], &t.entries.At(s.partly[0]).Value) }

// notPartly notes that a batch that is remembered in part comes again, or is let go of.
func (s *stream) notPartly(slot uint32) {
	if i := slices.Index(s.partly, slot); i >= 0 {
		s.partly = slices.Delete(s.partly, i, i+1)
	}
}

// mark notes that what was settled and asked for before the last mark has been sent. It reports whether there is more.
func (t *table) mark(s *stream) (more bool) {
	l := &s.log
	if l.asking > 0 {
		if l.asking--; l.asking == 0 {
			l.answer = max(l.answer, l.taken+2*t.queue(s)) // what was on its way, and the answer
		}
	}
	if !l.lost && l.taken >= l.again { // else acknowledgements may have been lost, of which copies come
		if l.sure != l.marked {
			if l.sure = l.marked; l.sure <= l.emptied {
				l.passed, l.marks = l.sure, nil
			} else {
				l.marks = append(l.marks, mark{l.sure, l.taken + t.queue(s)})
			}
		}
		l.marked = t.sent(l)
	}
	t.prune(s)
	return l.asking > 0 || !l.lost && l.sure < t.sent(l)
}

// sent is the last settling, as the stream counts them, that a mark makes surer. Where their number alone has acknowledgements sent it
// has two groups after it: those of other goroutines may have come first.
func (t *table) sent(l *log) uint64 {
	switch i := l.n - 1 - 2*t.o.AckGroup.Size; {
	case !t.o.AckGroup.BySize:
		return l.settled
	case i >= 0:
		return max(l.marked, l.at(i).settled)
	}
	return l.marked
}

// repeats notes that the broker sends everything again that is not acknowledged.
func (t *table) repeats(s *stream) {
	s.log.answer = max(s.log.answer, s.log.taken+2*t.queue(s)+uint64(s.unsettled))
}

// disconnected notes that a connection was lost. The broker sends everything again that is not acknowledged, and what was
// acknowledged of late.
func (t *table) disconnected(s *stream, now time.Time) {
	l := &s.log
	t.follow(s, none)
	t.comesAgain(s)
	l.lost, l.safe = true, l.sure
	s.run = run{last: s.run.last, index: s.run.index, lostAt: now, resent: s.run.resent}
}

// comesAgain notes that the broker sends everything again that it has no acknowledgement of.
func (t *table) comesAgain(s *stream) {
	l := &s.log
	l.lost, l.emptied = false, 0
	l.again = l.taken + 2*t.queue(s) + uint64(s.unsettled+l.n)
}

// received notes that the inner consumer received a message after a connection was lost. If the broker had its acknowledgement
// long before, an operator has moved the cursor back, over a new connection, which the queue does not outlive: what comes is to
// be delivered.
func (t *table) received(s *stream, id pulsar.MessageID, now time.Time) {
	l := &s.log
	slot, ok := t.entryAt(entryOf(id), s)
	if l.lost && !s.inactive {
		l.lost, s.run.heard, s.run.fresh = false, now, id
		t.resends(s, id)
	}
	if !ok || !t.entries.At(slot).Value.flags.has(logged) || !t.isSafe(l, l.in(t.entries.At(slot).Value.prev)) {
		return
	}
	for i := l.n - 1; i >= 0; i-- { // the first last: with it go those that were struck out after it
		if item := l.at(i); t.isSafe(l, item) {
			t.release(item.slot, &t.entries.At(item.slot).Value)
		}
	}
}

// isSafe reports whether the broker had the acknowledgement of a whole entry before the connection was lost. Those of several
// deliveries of a batch may not add up to one.
func (t *table) isSafe(l *log, item *settledEntry) bool {
	if item.slot == none || item.settled > l.safe {
		return false
	}
	e := &t.entries.At(item.slot).Value
	return !e.isBatch() || e.batch.acked == e.size() && !e.flags.has(repeated)
}

// idle notes that nothing came although somebody waited: nothing is on its way.
func (t *table) idle(s *stream) {
	l := &s.log
	if l.lost || l.asking > 0 {
		return
	}
	l.answer, l.again, l.passed, l.marks, l.emptied = l.taken, l.taken, l.sure, nil, l.settled
	s.run.again, s.run.fresh, s.run.resent = false, nil, 0
	t.follow(s, none)
	t.prune(s)
}
