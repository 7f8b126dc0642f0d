// Package delayqueue holds keys until their delays are over. It is the one clock of this module: both trackers stand on
// it.
package delayqueue

import (
	"math"
	"sync"
	"time"
)

// Queue hands each key to its callback once, when the key's delay is over. Any number of goroutines may use it.
//
// Map and heap name items by their slot, so nothing is allocated per key once the slices have grown, and for keys
// without pointers there is nothing in them for the garbage collector to follow.
type Queue[K comparable] struct {
	due   func([]K)
	start time.Time // due times count from here, on the monotonic clock
	done  chan struct{}
	ended chan struct{}

	mu     sync.Mutex
	timer  *time.Timer
	slots  map[K]int32
	items  []item[K]
	free   []int32
	heap   []int32 // slots, the earliest first; ties in order of Put
	puts   uint64
	closed bool
}

type item[K comparable] struct {
	key   K
	at    time.Duration
	delay time.Duration
	seq   uint64
	pos   int32 // in the heap
}

// New returns an empty queue that calls due with the keys whose delays are over, in order of their due times. Calls come
// one at a time, from one goroutine, outside any lock; due may call Put and Remove but not Close. Every queue must be
// closed.
func New[K comparable](due func([]K)) *Queue[K] {
	q := &Queue[K]{
		due:   due,
		start: time.Now(),
		done:  make(chan struct{}),
		ended: make(chan struct{}),
		timer: time.NewTimer(math.MaxInt64),
		slots: make(map[K]int32),
	}
	go q.run()
	return q
}

// Put adds key, due after delay; a negative delay counts as 0. A key that is there already keeps its due time, and Put
// returns false, as it does on a closed queue.
func (q *Queue[K]) Put(key K, delay time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.slots[key]; ok || q.closed {
		return false
	}
	slot := int32(len(q.items))
	if n := len(q.free); n > 0 {
		slot, q.free = q.free[n-1], q.free[:n-1]
	} else {
		q.items = append(q.items, item[K]{})
	}
	q.items[slot] = item[K]{key: key, delay: max(0, delay), pos: int32(len(q.heap))}
	q.slots[key] = slot
	q.heap = append(q.heap, slot)
	q.begin(slot)
	q.up(len(q.heap) - 1)
	if q.heap[0] == slot {
		q.arm()
	}
	return true
}

// Restart begins the delay of key anew and reports whether key was there.
func (q *Queue[K]) Restart(key K) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	slot, ok := q.slots[key]
	if ok {
		q.begin(slot)
		q.down(int(q.items[slot].pos)) // it can only be later than it was
	}
	return ok
}

// begin sets the due time of a key whose delay begins now.
func (q *Queue[K]) begin(slot int32) {
	item := &q.items[slot]
	if item.at = time.Since(q.start); item.at > math.MaxInt64-item.delay {
		item.at = math.MaxInt64
	} else {
		item.at += item.delay
	}
	q.puts++
	item.seq = q.puts
}

// Remove takes key out and reports whether it was there. After a true answer key is not handed to the callback.
func (q *Queue[K]) Remove(key K) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	slot, ok := q.slots[key]
	if ok {
		q.remove(slot)
	}
	return ok
}

// Len returns the number of keys that are waiting.
func (q *Queue[K]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.heap)
}

// Clear takes all keys out.
func (q *Queue[K]) Clear() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.clear()
}

// Close takes all keys out and returns when the queue's goroutine, and with it any call of due, has ended. Calling it
// again does nothing.
func (q *Queue[K]) Close() {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		q.clear()
		q.timer.Stop()
		close(q.done)
	}
	q.mu.Unlock()
	<-q.ended
}

func (q *Queue[K]) clear() {
	q.slots = make(map[K]int32)
	q.items, q.free, q.heap = nil, nil, nil
}

func (q *Queue[K]) run() {
	defer close(q.ended)
	for {
		select {
		case <-q.timer.C:
			if keys := q.takeDue(); len(keys) > 0 {
				q.due(keys)
			}
		case <-q.done:
			return
		}
	}
}

// atOnce limits how many keys are taken while others wait for the lock.
const atOnce = 256

func (q *Queue[K]) takeDue() []K {
	q.mu.Lock()
	defer q.mu.Unlock()
	var keys []K
	now := time.Since(q.start)
	for len(q.heap) > 0 && len(keys) < atOnce && q.items[q.heap[0]].at <= now {
		slot := q.heap[0]
		keys = append(keys, q.items[slot].key)
		q.remove(slot)
	}
	q.arm()
	return keys
}

// arm sets the timer for the earliest key.
func (q *Queue[K]) arm() {
	if len(q.heap) > 0 {
		q.timer.Reset(q.items[q.heap[0]].at - time.Since(q.start))
	}
}

func (q *Queue[K]) remove(slot int32) {
	pos, last := int(q.items[slot].pos), len(q.heap)-1
	if pos != last {
		q.set(pos, q.heap[last])
	}
	q.heap = q.heap[:last]
	if pos != last && !q.up(pos) {
		q.down(pos)
	}
	delete(q.slots, q.items[slot].key)
	q.items[slot] = item[K]{}
	q.free = append(q.free, slot)
}

func (q *Queue[K]) up(pos int) bool {
	slot, moved := q.heap[pos], false
	for pos > 0 {
		parent := (pos - 1) / 2
		if !q.before(slot, q.heap[parent]) {
			break
		}
		q.set(pos, q.heap[parent])
		pos, moved = parent, true
	}
	q.set(pos, slot)
	return moved
}

func (q *Queue[K]) down(pos int) {
	slot := q.heap[pos]
	for {
		child := 2*pos + 1
		if child >= len(q.heap) {
			break
		}
		if right := child + 1; right < len(q.heap) && q.before(q.heap[right], q.heap[child]) {
			child = right
		}
		if !q.before(q.heap[child], slot) {
			break
		}
		q.set(pos, q.heap[child])
		pos = child
	}
	q.set(pos, slot)
}

func (q *Queue[K]) before(a, b int32) bool {
	x, y := &q.items[a], &q.items[b]
	return x.at < y.at || x.at == y.at && x.seq < y.seq
}

func (q *Queue[K]) set(pos int, slot int32) {
	q.heap[pos] = slot
	q.items[slot].pos = int32(pos)
}
