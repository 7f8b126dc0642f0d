// Package slotmap has a hash map whose entries have numbers, their slots. An entry stays in its slot until it is removed,
// so that other structures may name it by a number of 4 bytes, and a slot is reached without hashing.
//
// It is there for millions of small entries: a chain and a hash bucket, 8 bytes, are all that it adds to an entry. It
// grows and shrinks by a page and by a bucket at a time, so that no operation takes long, and nothing is allocated while
// the number of entries stays about the same.
package slotmap

import (
	"hash/maphash"
	"math/bits"
	"slices"
)

// Map is a map from K to V, which may have several entries of one key. It is not safe for concurrent use.
//
// The buckets are a linear hash table (Litwin 1980), of half an entry to one each.
type Map[K comparable, V any] struct {
	hash    func(K) uint32
	pages   []page[K, V]
	open    []uint64 // a bit for each page that has a free slot
	lowest  int      // in open: all before it is 0
	spare   page[K, V]
	buckets []uint32 // the slots their chains begin with
	mask    uint32   // of a hash
	len     int
}

// Item is an entry. It must not be used once it is removed.
type Item[K comparable, V any] struct {
	Key   K
	Value V
	next  uint32 // the slot after this one in its bucket or, with the bit free, among its page's free ones
}

const (
	pageSize   = 255 // with the 8 bytes that Go adds to what has pointers, 255 small items fit Go's size classes
	minBuckets = 8
	none       = 1<<31 - 1 // ends a chain
	free       = 1 << 31
)

type page[K comparable, V any] struct {
	items *[pageSize]Item[K, V] // nil while all are free
	free  uint32                // the first free one
	len   int32
}

// HashUint64 is a hash of numbers, made for runs of them: multiplied by the golden ratio they are spread evenly by the highest
// bits of the product, and a Map looks at the lowest bits of a hash.
func HashUint64(n uint64) uint32 { return bits.Reverse32(uint32(n * 0x9e3779b97f4a7c15 >> 32)) }

// New returns an empty map. hash is nil for a hash that suits every key and takes longer; for uint64 it is HashUint64.
func New[K comparable, V any](hash func(K) uint32) *Map[K, V] {
	if hash == nil {
		hash, _ = any(HashUint64).(func(K) uint32)
	}
	if hash == nil {
		seed := maphash.MakeSeed()
		hash = func(key K) uint32 { return uint32(maphash.Comparable(seed, key)) }
	}
	m := &Map[K, V]{hash: hash}
	for range minBuckets {
		m.buckets = append(m.buckets, none)
	}
	m.mask = minBuckets - 1
	return m
}

// Len returns the number of entries.
func (m *Map[K, V]) Len() int { return m.len }

// At returns the entry in slot, or nil if there is none.
func (m *Map[K, V]) At(slot uint32) *Item[K, V] {
	if p := slot / pageSize; p < uint32(len(m.pages)) && m.pages[p].items != nil {
		if item := &m.pages[p].items[slot%pageSize]; item.next&free == 0 {
			return item
		}
	}
	return nil
}

func (m *Map[K, V]) item(slot uint32) *Item[K, V] {
	return &m.pages[slot/pageSize].items[slot%pageSize]
}

// Find returns the slot of key; if there are several, of the one that was added last.
func (m *Map[K, V]) Find(key K) (slot uint32, ok bool) {
	slot = m.find(m.buckets[m.bucket(key)], key)
	return slot, slot != none
}

// Another returns the slot of another entry with the key of the one in slot. Find and Another have all of a key's, each once.
func (m *Map[K, V]) Another(slot uint32) (another uint32, ok bool) {
	item := m.item(slot)
	another = m.find(item.next, item.Key)
	return another, another != none
}

// Add adds an entry of key, with a zero value, and returns its slot.
func (m *Map[K, V]) Add(key K) (slot uint32) {
	b := m.bucket(key)
	slot = m.take()
	item := m.item(slot)
	item.Key, item.next = key, m.buckets[b]
	m.buckets[b] = slot
	if m.len++; m.len > len(m.buckets) {
		m.split()
	}
	return slot
}

// Remove takes the entry in slot out.
func (m *Map[K, V]) Remove(slot uint32) {
	item := m.item(slot)
	link := &m.buckets[m.bucket(item.Key)]
	for *link != slot {
		link = &m.item(*link).next
	}
	*link = item.next
	m.give(slot)
	m.len--
	for m.len < len(m.buckets)/2 && len(m.buckets) > minBuckets {
		m.merge()
	}
}

// Clear takes all entries out and gives their memory back.
func (m *Map[K, V]) Clear() { *m = *New[K, V](m.hash) }

// find returns the first slot of key in a chain that begins with slot.
func (m *Map[K, V]) find(slot uint32, key K) uint32 {
	for slot != none {
		item := m.item(slot)
		if item.Key == key {
			break
		}
		slot = item.next
	}
	return slot
}

func (m *Map[K, V]) bucket(key K) uint32 {
	n := uint32(len(m.buckets))
	h := m.hash(key)
	b := h & m.mask
	if b >= n {
		b = h & (m.mask >> 1)
	}
	return b
}

// sibling returns the bucket that the last one of n was split from.
func sibling(n int) int { return (n - 1) &^ (1 << (bits.Len(uint(n-1)) - 1)) }

// split adds a bucket, with the entries of an older one that hash to it.
func (m *Map[K, V]) split() {
	last := uint32(len(m.buckets))
	m.buckets = append(m.buckets, none)
	m.mask |= last
	link := &m.buckets[sibling(len(m.buckets))]
	for *link != none {
		slot := *link
		item := m.item(slot)
		if m.bucket(item.Key) != last {
			link = &item.next
			continue
		}
		*link = item.next
		item.next, m.buckets[last] = m.buckets[last], slot
	}
}

// merge is the reverse of split.
func (m *Map[K, V]) merge() {
	last := len(m.buckets) - 1
	link := &m.buckets[sibling(len(m.buckets))]
	for *link != none {
		link = &m.item(*link).next
	}
	*link = m.buckets[last]
	m.mask = uint32(1)<<bits.Len(uint(last-1)) - 1
	if m.buckets = m.buckets[:last]; cap(m.buckets) > 1024 && cap(m.buckets) > 4*last {
		m.buckets = slices.Clone(m.buckets)
	}
}

// take finds a free slot, in the first page that has one, so that later pages become empty.
func (m *Map[K, V]) take() uint32 {
	for m.lowest < len(m.open) && m.open[m.lowest] == 0 {
		m.lowest++
	}
	if m.lowest == len(m.open) {
		m.open = append(m.open, ^uint64(0))
		m.pages = append(m.pages, make([]page[K, V], 64)...)
	}
	n := m.lowest*64 + bits.TrailingZeros64(m.open[m.lowest])
	p := &m.pages[n]
	if p.items == nil {
		*p, m.spare = m.spare, page[K, V]{}
	}
	if p.items == nil {
		p.items = new([pageSize]Item[K, V])
		for i := range p.items {
			p.items[i].next = free | uint32(i+1)
		}
	}
	slot := uint32(n*pageSize) + p.free
	p.free = p.items[p.free].next &^ free
	if p.len++; p.len == pageSize {
		m.open[m.lowest] &^= 1 << (n % 64)
	}
	return slot
}

// give frees a slot. A page that is empty is given back, but for the last one.
func (m *Map[K, V]) give(slot uint32) {
	n := int(slot / pageSize)
	p := &m.pages[n]
	p.items[slot%pageSize] = Item[K, V]{next: free | p.free}
	p.free = slot % pageSize
	m.open[n/64] |= 1 << (n % 64)
	m.lowest = min(m.lowest, n/64)
	if p.len--; p.len == 0 {
		*p, m.spare = page[K, V]{}, *p
	}
}
