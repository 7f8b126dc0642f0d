package pulsartest

import "math/bits"

// cursor is how far a subscription has read and acknowledged.
type cursor struct {
	mark    int              // all offsets before mark are acknowledged
	done    map[int]struct{} // acknowledged offsets after mark
	partial map[int][]uint64 // by offset of a partly acknowledged batch: a bit for each unacknowledged message
	read    int              // the next offset to read
}

func newCursor(start int) cursor {
	return cursor{mark: start, read: start, done: map[int]struct{}{}, partial: map[int][]uint64{}}
}

func (c *cursor) acked(offset int) bool {
	_, ok := c.done[offset]
	return ok || offset < c.mark
}

// ack acknowledges a whole entry.
func (c *cursor) ack(offset int) {
	if c.acked(offset) {
		return
	}
	delete(c.partial, offset)
	c.done[offset] = struct{}{}
	c.advance()
}

// forgetIndexes drops the acknowledgements of single messages of batches, as the real broker does when it unloads a
// topic.
func (c *cursor) forgetIndexes() { clear(c.partial) }

// ackUpTo acknowledges all entries before offset.
func (c *cursor) ackUpTo(offset int) {
	if offset <= c.mark {
		return
	}
	c.mark = offset
	for k := range c.done {
		if k < offset {
			delete(c.done, k)
		}
	}
	for k := range c.partial {
		if k < offset {
			delete(c.partial, k)
		}
	}
	c.advance()
}

func (c *cursor) advance() {
	for {
		if _, ok := c.done[c.mark]; !ok {
			break
		}
		delete(c.done, c.mark)
		c.mark++
	}
	c.read = max(c.read, c.mark)
}

// ackIndexes acknowledges messages of a batch of n messages: each message with a 0 bit in set. It returns the number of
// messages that remain unacknowledged. If none remains, it acknowledges the entry.
func (c *cursor) ackIndexes(offset, n int, set []int64) int {
	if c.acked(offset) {
		return 0
	}
	left, ok := c.partial[offset]
	if !ok {
		left = make([]uint64, (n+63)/64)
		for i := range n {
			left[i/64] |= 1 << (i % 64)
		}
		c.partial[offset] = left
	}
	count := 0
	for i := range left {
		if i < len(set) {
			left[i] &= uint64(set[i])
		} else {
			left[i] = 0
		}
		count += bits.OnesCount64(left[i])
	}
	if count == 0 {
		c.ack(offset)
	}
	return count
}

// remaining returns how many of an entry's n messages are not acknowledged. If the entry is partly acknowledged, set
// has a 1 bit for each unacknowledged message; otherwise set is nil.
func (c *cursor) remaining(offset, n int) (count int, set []int64) {
	words, ok := c.partial[offset]
	if !ok {
		return n, nil
	}
	for _, w := range words {
		count += bits.OnesCount64(w)
		set = append(set, int64(w))
	}
	return count, set
}

// backlog returns how many of the first size entries are not acknowledged.
func (c *cursor) backlog(size int) int { return max(size-c.mark-len(c.done), 0) }
