package slotmap

import (
	"iter"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Random operations against Go's map, over bursts that come and go.
func TestMapIsAMapWithSlots(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	m, model, slots := New[int, int](nil), map[int]int{}, map[int]uint32{}
	check := func() {
		require.Equal(t, len(model), m.Len(), "seed %d", seed)
		got := map[int]int{}
		for slot, item := range all(m) {
			require.Equal(t, slots[item.Key], slot)
			got[item.Key] = item.Value
		}
		require.Equal(t, model, got, "seed %d", seed)
		for key, slot := range slots {
			found, ok := m.Find(key)
			require.True(t, ok)
			require.Equal(t, slot, found, "an entry moved")
		}
		require.LessOrEqual(t, len(m.buckets), max(minBuckets, 2*m.Len()+1))
	}
	for round := range 20 {
		adds := rng.IntN(100)
		for range 5000 {
			key := rng.IntN(3000)
			slot, ok := m.Find(key)
			require.Equal(t, m.At(slot) != nil, ok)
			if rng.IntN(100) >= adds {
				if ok {
					m.Remove(slot)
					require.Nil(t, m.At(slot))
					delete(model, key)
					delete(slots, key)
				}
				continue
			}
			if !ok {
				slot := m.Add(key)
				model[key], slots[key] = rng.Int(), slot
				require.Zero(t, m.At(slot).Value)
				m.At(slot).Value = model[key]
			}
		}
		if check(); round == 10 {
			m.Clear()
			clear(model)
			clear(slots)
		}
	}
}

func TestPagesOfABurstAreGivenBack(t *testing.T) {
	m := New[int, int](nil)
	for i := range 100_000 {
		m.Add(i)
	}
	for slot, item := range all(m) {
		if item.Key%10_000 != 0 {
			m.Remove(slot)
		}
	}
	pages := 0
	for _, p := range m.pages {
		if p.items != nil {
			pages++
		}
	}
	assert.Equal(t, 10, pages)
	assert.LessOrEqual(t, cap(m.buckets), 1024)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		m.Remove(m.Add(-1))
	}))
}

// all has all entries. They may be removed meanwhile.
func all(m *Map[int, int]) iter.Seq2[uint32, *Item[int, int]] {
	return func(yield func(uint32, *Item[int, int]) bool) {
		for n := range m.pages {
			for i := 0; i < pageSize && m.pages[n].items != nil; i++ {
				slot := uint32(n*pageSize + i)
				if item := m.At(slot); item != nil && !yield(slot, item) {
					return
				}
			}
		}
	}
}

func TestEntriesOfOneKey(t *testing.T) {
	m := New[uint64, string](nil)
	for _, value := range []string{"a", "b", "c"} {
		m.At(m.Add(7)).Value = value
		m.Add(8)
	}
	values := func() (found string) {
		for slot, ok := m.Find(7); ok; slot, ok = m.Another(slot) {
			found += m.At(slot).Value
		}
		return found
	}
	assert.Equal(t, "cba", values())
	slot, _ := m.Find(7)
	slot, _ = m.Another(slot)
	m.Remove(slot)
	assert.Equal(t, "ca", values())
}

// Keys that count up, as entries of a ledger and as slots of a table do, are spread evenly over the buckets.
func TestRunsOfNumbersAreSpread(t *testing.T) {
	for _, from := range []uint64{0, 1 << 32, 77<<32 + 5} {
		for _, step := range []uint64{1, 2, 10, 1 << 32} {
			for _, n := range []uint64{1 << 10, 1 << 17} {
				buckets := make([]int, n)
				for i := range n {
					buckets[uint64(HashUint64(from+i*step))%n]++
				}
				assert.LessOrEqual(t, slices.Max(buckets), 5, "%d keys from %d by %d", n, from, step)
			}
		}
	}
}
