// Package delayqueue holds keys until their delays are over. It is the one clock of this module: both trackers stand on
// it.
package delayqueue

import (
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/slotmap"
)

// Queue hands each key to its callback once, when the key's delay is over. Any number of goroutines may use it.
//
// Keys and heap name each other by number, so nothing is allocated per key, and for keys without pointers there is nothing
// in them for the garbage collector to follow. Their memory shrinks with them.
type Queue[K comparable] struct {
	due   func([]K)
	start time.Time     // due times count from here, on the monotonic clock
	now   chan struct{} // has one when a key is due at once
	done  chan struct{}
	ended chan struct{}

	mu     sync.Mutex
	timer  *time.Timer
	wakes  time.Duration           // when the timer is set to
	keys   *slotmap.Map[K, uint32] // to their places in the heap
	heap   heap
	puts   uint32 // wraps: it only orders keys that are due at the same time
	closed bool

	restarts bool
	delays   []time.Duration // by slot, if keys may be restarted
}

// New returns an empty queue that calls due with the keys whose delays are over, in order of their due times. Calls come
// one at a time, from one goroutine, outside any lock; due may call Put and Remove but not Close. Every queue must be
// closed. Restart needs restarts, which costs 8 bytes for each key.
func New[K comparable](due func([]K), restarts bool) *Queue[K] {
	q := &Queue[K]{
		due:      due,
		start:    time.Now(),
		now:      make(chan struct{}, 1),
		done:     make(chan struct{}),
		ended:    make(chan struct{}),
		timer:    time.NewTimer(math.MaxInt64),
		keys:     slotmap.New[K, uint32](nil),
		wakes:    math.MaxInt64,
		restarts: restarts,
	}
	go q.run()
	return q
}

// Put adds key, due after delay; a negative delay counts as 0. A key that is there already keeps its due time, and Put
// returns false, as it does on a closed queue.
func (q *Queue[K]) Put(key K, delay time.Duration) bool { return q.PutSince(key, delay, 0) }

// PutSince is Put of a delay that began some time ago.
func (q *Queue[K]) PutSince(key K, delay, ago time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	if _, ok := q.keys.Find(key); ok {
		return false
	}
	slot := q.keys.Add(key)
	if q.restarts {
		q.delays = append(q.delays, make([]time.Duration, max(0, int(slot)+1-len(q.delays)))...)
		q.delays[slot] = delay
	}
	n := q.node(slot, delay-ago)
	q.up(q.heap.push(), n)
	if *q.heap.at(root) == n {
		q.arm()
	}
	return true
}

// Restart restarts the delay of key and reports whether key was there.
func (q *Queue[K]) Restart(key K) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	slot, ok := q.keys.Find(key)
	if ok {
		q.down(q.keys.At(slot).Value, q.node(slot, q.delays[slot])) // it can only be later than it was
	}
	return ok
}

// node returns what a key's place in the heap is to have, if its delay begins now.
func (q *Queue[K]) node(slot uint32, delay time.Duration) node {
	at := time.Since(q.start)
	if delay = max(0, delay); at > math.MaxInt64-delay {
		at = math.MaxInt64
	} else {
		at += delay
	}
	q.puts++
	return node{at, q.puts, slot}
}

// Remove takes key out and reports whether it was there. After a true answer key is not handed to the callback.
func (q *Queue[K]) Remove(key K) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	slot, ok := q.keys.Find(key)
	if ok {
		q.remove(slot)
	}
	return ok
}

// Has reports whether key is there.
func (q *Queue[K]) Has(key K) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, ok := q.keys.Find(key)
	return ok
}

// Left returns how much of key's delay is left.
func (q *Queue[K]) Left(key K) (d time.Duration, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	slot, ok := q.keys.Find(key)
	if ok {
		d = max(0, q.heap.at(q.keys.At(slot).Value).at-time.Since(q.start))
	}
	return d, ok
}

// Len returns the number of keys that are waiting.
func (q *Queue[K]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.keys.Len()
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
	q.keys.Clear()
	q.heap, q.delays = heap{}, nil
}

func (q *Queue[K]) run() {
	defer close(q.ended)
	for {
		select {
		case <-q.timer.C:
		case <-q.now:
		case <-q.done:
			return
		}
		if keys := q.takeDue(); len(keys) > 0 {
			q.due(keys)
			runtime.Gosched() // or who waits for a lock waits until it counts as starved
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
	q.wakes = math.MaxInt64
	for q.heap.len() > 0 && len(keys) < atOnce && q.heap.at(root).at <= now {
		slot := q.heap.at(root).slot
		keys = append(keys, q.keys.At(slot).Key)
		q.remove(slot)
	}
	q.arm()
	return keys
}

// arm sets the timer for the earliest key. One that is set for a time before stays: where keys are removed before they are
// due, as most are, it is seldom set at all.
func (q *Queue[K]) arm() {
	if q.heap.len() > 0 && q.heap.at(root).at < q.wakes {
		q.wakes = q.heap.at(root).at
		if d := q.wakes - time.Since(q.start); d > 0 {
			q.timer.Reset(d)
			return
		}
		// Go 1.25.0 locks up when a timer with a channel is reset to now in a bubble of synctest.
		select {
		case q.now <- struct{}{}:
		default:
		}
	}
}

func (q *Queue[K]) remove(slot uint32) {
	i := q.keys.At(slot).Value
	q.keys.Remove(slot)
	if q.keys.Len() == 0 && len(q.delays) > 1024 {
		q.delays = nil
	}
	if last := q.heap.pop(); last.slot != slot && !q.up(i, last) {
		q.down(i, last)
	}
}
