package partition

import (
	"maps"
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
)

// settledIDs are the entries of a partition that are settled and have left the table. Copies of them may still come:
// from upstream's queue, with the answer to a request, or after a lost connection. Each ledger has a bitmap of its
// entries, so millions of consecutive entries take a few bytes.
//
// An entry is in the recent generation at first. Each call of age moves it to the next generation. In the last one it
// is sure: the broker has its acknowledgement. A lost connection makes the Group forget no entry, since upstream's
// queue may still have copies.
type settledIDs struct {
	generations [generations]map[int64]*roaring64.Bitmap
	timer       timer // when it goes off, ageSettled is called

	parts map[position]indexSet // settled messages of entries that came in part; never sure
	order []position            // keys of parts, oldest first
}

const (
	recent = iota
	older
	sure
	generations
)

// maxParts limits parts. Entries that came in part are rare, and the oldest are the least likely to come again.
const maxParts = 1024

// indexSet is a set of messages of one batch.
type indexSet []uint64

func (s indexSet) has(index int32) bool {
	word := int(index / 64)
	return word < len(s) && s[word]&(1<<(index%64)) != 0
}

func (s indexSet) with(index int32) indexSet {
	for len(s) <= int(index/64) {
		s = append(s, 0)
	}
	s[index/64] |= 1 << (index % 64)
	return s
}

// remove forgets an entry.
func (s *settledIDs) remove(at position) {
	for _, of := range s.generations {
		if b := of[at.ledger]; b != nil {
			b.Remove(uint64(at.entry))
		}
	}
}

// add notes that all messages of an entry are settled. Their acknowledgement is sent now, so the entry is recent. No
// generation has it yet.
func (s *settledIDs) add(at position) {
	if s.generations[recent] == nil {
		s.generations[recent] = map[int64]*roaring64.Bitmap{}
	}
	b := s.generations[recent][at.ledger]
	if b == nil {
		b = roaring64.New()
		s.generations[recent][at.ledger] = b
	}
	b.Add(uint64(at.entry))
}

// addPart notes that these messages of an entry are settled, and that the others did not come.
func (s *settledIDs) addPart(at position, indexes indexSet) {
	if s.parts == nil {
		s.parts = map[position]indexSet{}
	}
	s.parts[at] = indexes
	s.order = append(s.order, at)
	for len(s.order) > maxParts {
		delete(s.parts, s.order[0])
		s.order = s.order[1:]
	}
}

// takePart removes an entry from parts and returns its settled messages. It is called when more of the entry comes.
func (s *settledIDs) takePart(at position) indexSet {
	indexes, ok := s.parts[at]
	if ok {
		delete(s.parts, at)
		s.order = slices.DeleteFunc(s.order, func(other position) bool { return other == at })
	}
	return indexes
}

// has reports whether a message that is not in the table is settled.
func (s *settledIDs) has(at position, index int32) bool {
	return s.hasEntry(at) || index >= 0 && s.parts[at].has(index)
}

// hasEntry reports whether all messages of an entry are settled.
func (s *settledIDs) hasEntry(at position) bool {
	for _, of := range s.generations {
		if b := of[at.ledger]; b != nil && b.Contains(uint64(at.entry)) {
			return true
		}
	}
	return false
}

// isSure reports whether the broker certainly has the acknowledgement of an entry.
func (s *settledIDs) isSure(at position) bool {
	b := s.generations[sure][at.ledger]
	return b != nil && b.Contains(uint64(at.entry))
}

// age makes every entry older.
func (s *settledIDs) age() {
	if s.generations[sure] == nil {
		s.generations[sure] = map[int64]*roaring64.Bitmap{}
	}
	of := s.generations[sure]
	for ledger, b := range s.generations[older] {
		if of[ledger] == nil {
			of[ledger] = b
		} else {
			of[ledger].Or(b)
		}
	}
	s.generations[older], s.generations[recent] = s.generations[recent], nil
}

// trim keeps the ids of the newest ledgers, up to limit bytes, and forgets the others. It considers only sure ids if
// from is sure, and all ids if from is recent. It reports whether it forgot any.
func (s *settledIDs) trim(from int, limit uint64) (forgot bool) {
	bytes := map[int64]uint64{}
	for _, of := range s.generations[from:] {
		for ledger, b := range of {
			b.RunOptimize()
			bytes[ledger] += b.GetSizeInBytes()
		}
	}
	total := uint64(0)
	for _, ledger := range slices.Backward(slices.Sorted(maps.Keys(bytes))) {
		if total += ledgerBytes + bytes[ledger]; total > limit {
			for _, of := range s.generations[from:] {
				delete(of, ledger)
			}
			forgot = true
		}
	}
	return forgot
}

// ledgerBytes is the overhead of a ledger's bitmap.
const ledgerBytes = 256

// canAge reports whether there are ids that are not sure yet.
func (s *settledIDs) canAge() bool {
	return len(s.generations[recent]) > 0 || len(s.generations[older]) > 0
}

// forgetSure forgets the sure ids, after an operator moved the cursor back.
func (s *settledIDs) forgetSure() { s.generations[sure] = nil }
