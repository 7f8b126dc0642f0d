// Package clock has a heap of timers; callers pass the time in. A Group of package partition has one heap for all its
// delays, ack timeouts and requests. Each Tracker of packages nack and acktimeout has a heap, too.
package clock

import "time"

// Timer is one alarm of a Clock. Its zero value is not set.
type Timer[T any] struct {
	Of T // the caller's key

	at    time.Duration
	order uint64 // timers of one instant go off in the order in which they were set
	slot  int    // its place in the heap, from 1; 0 if it is not set
}

// IsSet reports whether the timer runs.
func (t *Timer[T]) IsSet() bool { return t.slot > 0 }

// At returns when a running timer goes off.
func (t *Timer[T]) At() time.Duration { return t.at }

// Before reports whether t goes off before another timer of its Clock.
func (t *Timer[T]) Before(other *Timer[T]) bool {
	return t.at < other.at || t.at == other.at && t.order < other.order
}

// Clock is a heap of timers. The caller passes the time in, as the duration since a moment of its choice.
type Clock[T any] struct {
	heap  []*Timer[T]
	order uint64
}

// Timers returns the running timers, in no order. The caller must neither change nor keep the slice.
func (c *Clock[T]) Timers() []*Timer[T] { return c.heap }

// Set starts t, or moves it if it runs.
func (c *Clock[T]) Set(t *Timer[T], at time.Duration) {
	c.order++
	t.at, t.order = at, c.order
	if t.slot == 0 {
		c.heap = append(c.heap, t)
		t.slot = len(c.heap)
	}
	c.down(c.up(t.slot))
}

// Stop stops t if it runs.
func (c *Clock[T]) Stop(t *Timer[T]) {
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

// Pop stops and returns the next timer that goes off at now or before, or nil if there is none.
func (c *Clock[T]) Pop(now time.Duration) *Timer[T] {
	if len(c.heap) == 0 || c.heap[0].at > now {
		return nil
	}
	t := c.heap[0]
	c.Stop(t)
	return t
}

// Next returns when the next timer goes off; ok is false if none runs.
func (c *Clock[T]) Next() (at time.Duration, ok bool) {
	if len(c.heap) == 0 {
		return 0, false
	}
	return c.heap[0].at, true
}

func (c *Clock[T]) put(t *Timer[T], slot int) {
	c.heap[slot-1] = t
	t.slot = slot
}

// up moves a timer towards the root and returns its new slot.
func (c *Clock[T]) up(slot int) int {
	t := c.heap[slot-1]
	for slot > 1 && t.Before(c.heap[slot/2-1]) {
		c.put(c.heap[slot/2-1], slot)
		slot /= 2
	}
	c.put(t, slot)
	return slot
}

// down moves a timer away from the root.
func (c *Clock[T]) down(slot int) {
	t := c.heap[slot-1]
	for child := 2 * slot; child <= len(c.heap); child = 2 * slot {
		if child < len(c.heap) && c.heap[child].Before(c.heap[child-1]) {
			child++
		}
		if !c.heap[child-1].Before(t) {
			break
		}
		c.put(c.heap[child-1], slot)
		slot = child
	}
	c.put(t, slot)
}
