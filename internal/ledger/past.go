package ledger

import (
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
)

// past has the settled entries of a stream, of which copies may come: out of the inner consumer's queue, with the broker's answer to a
// request, after a reconnect that lost the acknowledgement. They cost a bit or two each, so they stay for as long as there is room.
type past struct {
	pages  map[entryID]*page
	rounds uint64 // how often SendDelay was over, but for when acknowledgements may have been lost
	since  int    // entries that were acknowledged since the last time
	parts  []part // entries that are settled as far as they came
}

// page has the settled entries among 65,536 of a broker's ledger.
type page struct {
	stream *stream
	id     entryID
	in     [stages]*roaring.Bitmap // nil if it is empty
}

// stage is how far the acknowledgement of an entry has come. Each round takes it further.
type stage uint8

const (
	unacked stage = iota
	open          // the broker may wait for another acknowledgement, which has not succeeded yet
	recent        // acknowledged since the last round
	older         // since the one before
	sure          // the broker has it
	stages
)

// maxPast is how many bytes there are room for, beyond what is not sure.
const maxPast = 1 << 20

func pageOf(id entryID) (page entryID, low uint32) {
	return entryID{id.ledger, id.entry >> 16}, uint32(uint16(id.entry))
}

// stage returns how far the acknowledgement of an entry has come, if the whole of it is settled.
func (s *stream) stage(id entryID) stage {
	key, low := pageOf(id)
	if p := s.past.pages[key]; p != nil {
		for at := sure; at > unacked; at-- {
			if b := p.in[at]; b != nil && b.Contains(low) {
				return at
			}
		}
	}
	return unacked
}

// remember notes that an entry is settled of which that was not known.
func (t *table) remember(s *stream, id entryID, at stage) {
	key, low := pageOf(id)
	p := s.past.pages[key]
	if p == nil {
		p = &page{stream: s, id: key}
		s.past.pages[key] = p
		t.pages = append(t.pages, p)
	}
	if p.in[at] == nil {
		p.in[at] = roaring.New()
	}
	if p.in[at].Add(low); at == recent {
		s.past.since++
	}
}

// restage notes that the acknowledgement of a settled entry is at another stage. What the broker has it has, though a copy comes late, unless
// nobody tells of a connection that was lost.
func (t *table) restage(s *stream, id entryID, to stage) {
	if t.o.ReconnectEvents && s.stage(id) == sure {
		return
	}
	key, low := pageOf(id)
	p := s.past.pages[key]
	for at, b := range p.in {
		if b != nil && b.CheckedRemove(low) && b.IsEmpty() {
			p.in[at] = nil
		}
	}
	t.remember(s, id, to)
}

// trim forgets what is sure, the oldest first, until the rest has room.
func (t *table) trim() {
	size := 0
	for _, p := range t.pages {
		size += bytesOf(p.in[sure])
	}
	t.pages = slices.DeleteFunc(t.pages, func(p *page) bool {
		if size > maxPast {
			size -= bytesOf(p.in[sure])
			p.in[sure] = nil
		}
		if p.in != [stages]*roaring.Bitmap{} && !p.stream.gone {
			return false
		}
		delete(p.stream.past.pages, p.id)
		return true
	})
}

// bytesOf returns how many bytes a bitmap and its page take, roughly.
func bytesOf(b *roaring.Bitmap) int {
	if b == nil {
		return 0
	}
	return 512 + int(b.GetSizeInBytes())
}

// IsSettled reports whether a message was acknowledged.
func (l *Ledger) IsSettled(n Name) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, _, r := l.table.find(n); r != nil {
		return r.state == acked
	}
	return l.table.isSettled(n)
}

// isSettled reports whether a message is of an entry that is settled.
func (t *table) isSettled(n Name) bool {
	s := t.streamOf(n)
	return s != nil && s.stage(entryOf(n.ID)) > unacked
}

// unsure returns of how many settled entries copies come if a connection was lost.
func (s *stream) unsure() (n int) {
	for _, p := range s.past.pages {
		for _, b := range p.in[:sure] {
			if b != nil {
				n += int(b.GetCardinality())
			}
		}
	}
	return n
}

// forgetSure forgets what is surely acknowledged, since an operator may have moved the cursor back.
func (s *stream) forgetSure() {
	for _, p := range s.past.pages {
		p.in[sure] = nil
	}
}

// startRounds has two rounds begin, after which what was acknowledged is sure. The caller holds mu.
func (l *Ledger) startRounds() {
	if l.roundsLeft == 0 && !l.closed {
		l.rounds.Reset(l.o.SendDelay)
	}
	l.roundsLeft = 2
}

// round notes that SendDelay is over: what was acknowledged before the last round has been sent.
func (l *Ledger) round() {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	var asks []ask
	covers := false
	for _, s := range l.table.streams {
		covers = covers || s.cover.due && s.isCoverWhole()
		if l.table.goFurther(s) {
			asks = append(asks, l.finishParts(s)...)
			l.table.releaseParts(s, maxParts)
		}
		if s.missed != nil && !s.inactive {
			asks = append(asks, ask{s.consumer, s.topic, s.missed})
			s.missed = nil
		}
	}
	l.table.trim()
	if l.roundsLeft--; l.roundsLeft > 0 {
		l.rounds.Reset(l.o.SendDelay)
	}
	l.unlockAndNotify(asks...)
	if covers {
		l.o.Calls.AckAgain()
	}
}

// goFurther makes surer what was acknowledged before the last rounds. It reports false if nothing becomes surer: while acknowledgements may have
// been lost, of which copies come, and, where their number alone has them sent, before there are two groups more: those of other goroutines may
// have come first.
func (t *table) goFurther(s *stream) bool {
	if s.isInDoubt() || t.o.AckGroup.BySize && s.past.since < 2*t.o.AckGroup.Size {
		return false
	}
	s.past.rounds++
	s.past.since = 0
	if !t.o.ReconnectEvents { // nobody tells of a connection that was lost, nor of an operator: by now all copies have come
		s.forgetSure()
		t.comesAgain(s)
	}
	for _, p := range s.past.pages {
		if p.in[older] != nil {
			if p.in[sure] != nil {
				p.in[older].Or(p.in[sure])
			}
			p.in[older].RunOptimize()
			p.in[sure] = p.in[older]
		}
		p.in[older], p.in[recent] = p.in[recent], nil
	}
	return true
}

// isInDoubt reports whether acknowledgements may have been lost of which copies have not come yet.
func (s *stream) isInDoubt() bool { return s.lost || s.taken < s.again }

// isSure reports whether the broker has what was acknowledged when so many rounds had passed.
func (s *stream) isSure(rounds uint64) bool { return rounds+2 <= s.past.rounds }

// settleEntry remembers an entry that has nothing unsettled. If the broker may have more of it, it stays here.
func (t *table) settleEntry(slot uint32, e *entry) {
	s := e.stream()
	switch {
	case !e.isSettled():
		return
	case s.current == slot && e.batch.seen < e.size(): // more of it is about to arrive
		return
	case s.gone:
	case !e.isWhole():
		s.past.notPart(slot)
		s.past.parts = append(s.past.parts, part{slot: slot, rounds: s.past.rounds})
		t.releaseParts(s, maxParts)
		return
	default:
		t.remember(s, t.entries.At(slot).Key, recent)
	}
	t.release(slot, e)
}
