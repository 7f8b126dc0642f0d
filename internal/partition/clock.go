package partition

import "time"

// timer is one alarm of a clock: of a message, of a request, or of a partition's settled ids.
type timer struct {
	at      time.Duration
	order   uint64 // timers of one instant go off in the order in which they were set
	slot    int    // its place in the heap, from 1; 0 if it is not set
	message *message
	request *request
	settled *Partition
}

// clock is a heap of timers. The caller passes the time in.
type clock struct {
	heap  []*timer
	order uint64
}

// set starts t, or moves it if it is running.
func (c *clock) set(t *timer, at time.Duration) {
	c.order++
	t.at, t.order = at, c.order
	if t.slot == 0 {
		c.heap = append(c.heap, t)
		t.slot = len(c.heap)
	}
	c.down(c.up(t.slot))
}

// stop stops t if it is running.
func (c *clock) stop(t *timer) {
	slot := t.slot
	if slot == 0 {
		return
	}
	t.slot = 0
	last := len(c.heap)
	moved := c.heap[last-1]
	c.heap[last-1] = nil
	c.heap = c.heap[:last-1]
	if slot < last {
		c.put(moved, slot)
		c.down(c.up(slot))
	}
}

// pop stops and returns the next timer that is over at now, or nil.
func (c *clock) pop(now time.Duration) *timer {
	if len(c.heap) == 0 || c.heap[0].at > now {
		return nil
	}
	t := c.heap[0]
	c.stop(t)
	return t
}

// next returns when the next timer is over; ok is false if none runs.
func (c *clock) next() (at time.Duration, ok bool) {
	if len(c.heap) == 0 {
		return 0, false
	}
	return c.heap[0].at, true
}

func (c *clock) put(t *timer, slot int) {
	c.heap[slot-1] = t
	t.slot = slot
}

func (c *clock) before(a, b *timer) bool { return a.at < b.at || a.at == b.at && a.order < b.order }

// up moves a timer towards the root and returns where it ended.
func (c *clock) up(slot int) int {
	t := c.heap[slot-1]
	for slot > 1 && c.before(t, c.heap[slot/2-1]) {
		c.put(c.heap[slot/2-1], slot)
		slot /= 2
	}
	c.put(t, slot)
	return slot
}

// down moves a timer away from the root.
func (c *clock) down(slot int) {
	t := c.heap[slot-1]
	for child := 2 * slot; child <= len(c.heap); child = 2 * slot {
		if child < len(c.heap) && c.before(c.heap[child], c.heap[child-1]) {
			child++
		}
		if !c.before(c.heap[child-1], t) {
			break
		}
		c.put(c.heap[child-1], slot)
		slot = child
	}
	c.put(t, slot)
}
