package pulsartest

import (
	"math/bits"
	"slices"
	"sort"
	"strconv"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// Key hashes are divided into slots, and the slots among the consumers.
const (
	keySlots   = 65536
	ringPoints = 100 // of each consumer
)

// keySelector assigns each key to one consumer of a Key_Shared subscription, by a ring of hashes or by the ranges that
// the consumers have asked for. Without outOfOrder, no consumer gets entries of a key while another consumer has
// some.
type keySelector struct {
	sticky     bool
	outOfOrder bool
	ring       []ringPoint // sorted by slot
	ranges     []keyRange
	held       map[uint32]*holder
	names      map[string]int      // how many consumers of each name there have been
	stopped    map[uint32]struct{} // slots that this pass has stepped over
}

type ringPoint struct {
	slot     uint32
	consumer *consumer
}

type keyRange struct {
	start, end int32
	consumer   *consumer
}

// holder is the consumer that has entries of a slot, with the number of these entries.
type holder struct {
	consumer *consumer
	entries  int
}

func (k *keySelector) add(c *consumer) error {
	sticky := c.keys.Mode == wire.Sticky
	if len(k.ring)+len(k.ranges) > 0 && (k.sticky != sticky || k.outOfOrder != c.keys.AllowOutOfOrder) {
		return failf(wire.ConsumerBusy, "Subscription is of different type")
	}
	if k.held == nil {
		k.held, k.names, k.stopped = map[uint32]*holder{}, map[string]int{}, map[uint32]struct{}{}
	}
	if sticky {
		if len(c.keys.HashRanges) == 0 {
			return failf(wire.ConsumerAssignError, "Ranges for Key_Shared policy must not be empty")
		}
		for _, r := range c.keys.HashRanges {
			if r.Start < 0 || r.End < r.Start || r.End >= keySlots {
				return failf(wire.ConsumerAssignError, "Invalid range [%d, %d]", r.Start, r.End)
			}
			for _, have := range k.ranges {
				if r.Start <= have.end && have.start <= r.End {
					return failf(wire.ConsumerAssignError, "Range conflict with consumer %s", have.consumer.name)
				}
			}
		}
		for _, r := range c.keys.HashRanges {
			k.ranges = append(k.ranges, keyRange{r.Start, r.End, c})
		}
	} else {
		index := k.names[c.name]
		k.names[c.name]++
		for i := range ringPoints {
			slot := slotOf(keyHash([]byte(c.name + "\x00" + strconv.Itoa(index) + "\x00" + strconv.Itoa(i))))
			at := sort.Search(len(k.ring), func(i int) bool { return k.ring[i].slot >= slot })
			if at == len(k.ring) || k.ring[at].slot != slot {
				k.ring = slices.Insert(k.ring, at, ringPoint{slot, c})
			}
		}
	}
	k.sticky, k.outOfOrder = sticky, c.keys.AllowOutOfOrder
	return nil
}

func (k *keySelector) remove(c *consumer) {
	k.ring = slices.DeleteFunc(k.ring, func(p ringPoint) bool { return p.consumer == c })
	k.ranges = slices.DeleteFunc(k.ranges, func(r keyRange) bool { return r.consumer == c })
}

// begin starts a pass over the entries in order.
func (k *keySelector) begin() { clear(k.stopped) }

// choose returns the consumer of the key with this hash, or nil if the consumer cannot take the key's next entry now.
// Without outOfOrder, choose then also returns nil for later entries of the key in this pass.
func (k *keySelector) choose(hash uint32, free map[*consumer]int) *consumer {
	slot := slotOf(hash)
	if _, ok := k.stopped[slot]; ok {
		return nil
	}
	c := k.owner(hash)
	if c != nil && (free == nil && c.available() || free[c] > 0 && !c.blocked && !c.session.gone) {
		if h := k.held[slot]; h == nil || h.consumer == c || k.outOfOrder {
			return c
		}
	}
	if !k.outOfOrder {
		k.stopped[slot] = struct{}{}
	}
	return nil
}

func (k *keySelector) owner(hash uint32) *consumer {
	if k.sticky {
		slot := int32(hash % keySlots) // may be 0, unlike that of slotOf
		for _, r := range k.ranges {
			if r.start <= slot && slot <= r.end {
				return r.consumer
			}
		}
		return nil
	}
	if len(k.ring) == 0 {
		return nil
	}
	slot := slotOf(hash)
	at := sort.Search(len(k.ring), func(i int) bool { return k.ring[i].slot >= slot })
	return k.ring[at%len(k.ring)].consumer
}

// hold records that c has an entry of the hash's slot.
func (k *keySelector) hold(hash uint32, c *consumer) {
	if k.held == nil { // not Key_Shared
		return
	}
	h := k.held[slotOf(hash)]
	if h == nil {
		h = &holder{consumer: c}
		k.held[slotOf(hash)] = h
	}
	h.entries++
}

func (k *keySelector) release(hash uint32) {
	if h := k.held[slotOf(hash)]; h != nil {
		h.entries--
		if h.entries == 0 {
			delete(k.held, slotOf(hash))
		}
	}
}

// slotOf returns a slot of at least 1, since 0 means no slot in the real broker.
func slotOf(hash uint32) uint32 { return 1 + hash%(keySlots-1) }

// keyHash returns the 32-bit murmur3 hash of key without its sign bit, which is Pulsar's hash of keys.
func keyHash(key []byte) uint32 {
	const c1, c2 = 0xcc9e2d51, 0x1b873593
	h := uint32(0)
	n := len(key)
	for len(key) >= 4 {
		k := uint32(key[0]) | uint32(key[1])<<8 | uint32(key[2])<<16 | uint32(key[3])<<24
		h ^= bits.RotateLeft32(k*c1, 15) * c2
		h = bits.RotateLeft32(h, 13)*5 + 0xe6546b64
		key = key[4:]
	}
	k := uint32(0)
	for _, k0 := range slices.Backward(key) {
		k = k<<8 | uint32(k0)
	}
	if len(key) > 0 {
		h ^= bits.RotateLeft32(k*c1, 15) * c2
	}
	h ^= uint32(n)
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	h ^= h >> 16
	return h & 0x7fffffff
}
