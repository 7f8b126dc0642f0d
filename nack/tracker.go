// Package nack tracks messages that were negatively acknowledged, until their delay is over (PIP-106).
//
// A Tracker knows no broker and no consumer: keys go in, due keys come out. What a key is, and what redelivery means, is
// its owner's business. Package acktimeout is its twin for messages that were not settled at all.
package nack

import (
	"time"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/delayqueue"
)

// DefaultDelay is the delay of a nil policy: one minute, as in all Pulsar clients.
const DefaultDelay = time.Minute

// Tracker holds negatively acknowledged keys and hands each out once, when its delay is over: exactly then, neither early
// nor on a tick. Any number of goroutines may use it.
type Tracker[K comparable] struct {
	backoff backoff.RedeliveryBackoff
	queue   *delayqueue.Queue[K]
}

// New returns a Tracker that delays by b, or by DefaultDelay if b is nil, and calls due with the keys whose delay is over,
// in order of time. Calls come one at a time, from the Tracker's one goroutine, outside any lock; due may use the Tracker
// but not close it. Close ends the goroutine.
func New[K comparable](b backoff.RedeliveryBackoff, due func([]K)) *Tracker[K] {
	if b == nil {
		b = backoff.Fixed(DefaultDelay)
	}
	return &Tracker[K]{b, delayqueue.New(due, false)}
}

// Track starts the delay of a key whose message has been redelivered redeliveryCount times before. A key that is tracked
// already keeps its due time.
func (t *Tracker[K]) Track(key K, redeliveryCount uint32) {
	t.TrackFor(key, t.backoff.Next(redeliveryCount))
}

// TrackFor is Track with a delay in place of the policy's. A negative delay counts as 0.
func (t *Tracker[K]) TrackFor(key K, d time.Duration) { t.queue.Put(key, d) }

// Untrack forgets key and reports whether it was tracked. After a true answer key does not come due.
func (t *Tracker[K]) Untrack(key K) bool { return t.queue.Remove(key) }

// Tracks reports whether key is tracked.
func (t *Tracker[K]) Tracks(key K) bool { return t.queue.Has(key) }

// Len returns the number of tracked keys.
func (t *Tracker[K]) Len() int { return t.queue.Len() }

// Clear forgets all keys.
func (t *Tracker[K]) Clear() { t.queue.Clear() }

// Close forgets all keys and returns when the Tracker's goroutine has ended. Nothing comes due afterwards, and tracking
// does nothing.
func (t *Tracker[K]) Close() { t.queue.Close() }
