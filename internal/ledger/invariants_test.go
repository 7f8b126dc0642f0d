package ledger

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/apache/pulsar-client-go/pulsar"
)

// broken returns what does not hold of a Ledger that is at rest, or nil.
func (l *Ledger) broken() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &l.table
	in := map[uint32]string{}
	for _, s := range t.streams {
		if err := t.brokenStream(s, in); err != nil {
			return fmt.Errorf("stream %s: %w", s.topic, err)
		}
	}
	var states [acked + 1]int
	var bytes int64
	leaves := 0
	for slot, left := uint32(0), t.entries.Len(); left > 0; slot++ {
		item := t.entries.At(slot)
		if item == nil {
			continue
		}
		left--
		e := &item.Value
		for i := range e.size() {
			r := e.at(i)
			if r.state == unseen {
				continue
			}
			states[r.state]++
			if _, ok := r.of.(pulsar.Message); ok != r.isKept() {
				return fmt.Errorf("%v.%d is kept %t, and said to be %t", item.Key, i, ok, r.isKept())
			}
			bytes += r.size.bytes()
			if r.flags.has(leaving) {
				leaves++
			}
			if r.state == ready && !r.isKept() {
				return fmt.Errorf("%v.%d is ready and not here", item.Key, i)
			}
		}
		if e.isBatch() && e.batch.kept > 0 {
			bytes += e.batch.size
		}
		if err := t.brokenEntry(slot, e, in[slot]); err != nil {
			return fmt.Errorf("entry %v, which is in %q: %w", item.Key, in[slot], err)
		}
		if found, ok := t.entryAt(item.Key, e.stream()); !ok || found != slot {
			return fmt.Errorf("entry %v is there twice", item.Key)
		}
	}
	if !slices.Equal(states[1:], t.states[1:]) {
		return fmt.Errorf("states are counted as %v, and are %v", t.states, states)
	}
	if bytes != t.memory.bytes || leaves != t.memory.leaving {
		return fmt.Errorf("%d bytes are counted, and are %d; %d leave, and %d do", t.memory.bytes, bytes, t.memory.leaving, leaves)
	}
	refs := slices.Collect(maps.Keys(t.newer))
	refs = slices.AppendSeq(refs, maps.Keys(t.failed))
	for _, ref := range refs {
		if _, r := t.at(ref); r == nil || r.state == acked {
			return fmt.Errorf("something is kept of %d.%d, which is gone or settled", ref.slot(), ref.index())
		}
	}
	slots := slices.Collect(maps.Keys(t.asked))
	for ref := range t.older {
		slots = append(slots, ref.slot())
	}
	for _, slot := range slots {
		if t.entries.At(slot) == nil {
			return fmt.Errorf("something is kept of slot %d, which is free", slot)
		}
	}
	return nil
}

// brokenStream checks what a stream has, and adds to in where its entries are.
func (t *table) brokenStream(s *stream, in map[uint32]string) error {
	unsettled, last := 0, uint32(none)
	for slot := s.list.head; slot != none; {
		item := t.entries.At(slot)
		if item == nil {
			return fmt.Errorf("slot %d of the list is free", slot)
		}
		e := &item.Value
		if in[slot] != "" || e.prev != last || e.stream() != s || e.isSettled() {
			return fmt.Errorf("entry %v of the list: in it twice %t, wrongly linked %t, settled %t", item.Key, in[slot] != "", e.prev != last, e.isSettled())
		}
		in[slot] = "list "
		for i := range e.size() {
			if state := e.at(i).state; state != unseen && state != acked {
				unsettled++
			}
		}
		last, slot = slot, e.next
	}
	if last != s.list.tail || unsettled != s.unsettled {
		return fmt.Errorf("the list ends with %d, not %d; %d are unsettled, not %d", last, s.list.tail, unsettled, s.unsettled)
	}
	for _, p := range s.past.parts {
		in[p.slot] += "partly "
	}
	for id, p := range s.past.pages {
		all := roaring.New()
		for _, b := range p.in {
			switch {
			case b == nil:
			case b.IsEmpty():
				return fmt.Errorf("an empty bitmap of %v is kept", id)
			case all.Intersects(b):
				return fmt.Errorf("an entry of %v is in two bitmaps", id)
			default:
				all.Or(b)
			}
		}
		if p.stream != s || p.id != id || !slices.Contains(t.pages, p) {
			return fmt.Errorf("page %v is not where it belongs", id)
		}
	}
	if s.current != none {
		in[s.current] += "current "
	}
	for slot := range in {
		if t.entries.At(slot) == nil {
			return fmt.Errorf("slot %d, which is in %q, is free", slot, in[slot])
		}
	}
	return nil
}

// brokenEntry checks an entry that is in the lists named.
func (t *table) brokenEntry(slot uint32, e *entry, lists string) error {
	s, isIn := e.stream(), map[string]bool{}
	if s.stage(t.entries.At(slot).Key) > unacked {
		return errors.New("it is remembered as settled too")
	}
	for _, list := range []string{"list ", "partly ", "current "} {
		isIn[list] = strings.Count(lists, list) == 1
	}
	seen, settled := int32(0), int32(0)
	for i := range e.size() {
		if state := e.at(i).state; state == acked {
			settled++
		} else if state == unseen {
			continue
		}
		seen++
	}
	switch {
	case e.isBatch() && (seen != e.batch.seen || settled != e.batch.acked):
		return fmt.Errorf("seen %d and settled %d, not %d and %d", seen, settled, e.batch.seen, e.batch.acked)
	case isIn["partly "] != strings.Contains(lists, "partly "), isIn["partly "] && (e.isWhole() || isIn["list "]):
		return fmt.Errorf("it is whole, there twice, or elsewhere too")
	case isIn["current "] && !e.isBatch():
		return fmt.Errorf("it is no batch")
	case isIn["list "] || isIn["partly "]:
	case s.gone && settled < seen: // it was being settled when its consumer went
	case isIn["current "] && e.batch.seen < e.size():
	default:
		return fmt.Errorf("nothing lets go of it: seen %d, settled %d", seen, settled)
	}
	return nil
}
