// Package nack tracks messages that were negatively acknowledged, until their delay is over (PIP-106).
//
// A Tracker knows no broker and no consumer: keys go in, due keys come out. The caller decides what a key stands for, and redelivers the
// message. The delay comes from a policy, by the redelivery count that the caller gives: a redelivery.Consumer gives its own count, and
// has one Tracker for all its nacks. Package acktimeout does the same for messages that the application has not settled.
package nack

import (
	"time"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/delayqueue"
)

// DefaultDelay is the delay that a Tracker uses if its policy is nil: one minute, as in all Pulsar clients.
const DefaultDelay = time.Minute

// Tracker holds the keys of negatively acknowledged messages. It hands out each key once, exactly when its delay is over: not
// early, and not on a tick. It is safe for concurrent use.
type Tracker[K comparable] struct {
	backoff backoff.RedeliveryBackoff
	queue   *delayqueue.Queue[K]
}

// New returns a Tracker that delays by b, or by DefaultDelay if b is nil. It calls due with the keys whose delay is over, in
// order of time. The calls come one at a time, from the Tracker's one goroutine, with no lock held. due must not be nil or panic. It may use the
// Tracker, but must not close it. Close ends the goroutine.
func New[K comparable](b backoff.RedeliveryBackoff, due func([]K)) *Tracker[K] {
	if due == nil {
		panic("nack: due is nil, want a function")
	}
	if b == nil {
		b = backoff.Fixed(DefaultDelay)
	}
	return &Tracker[K]{b, delayqueue.New(due, false)}
}

// Track starts the delay of a key whose message has been redelivered redeliveryCount times before. If the key is already tracked,
// it keeps its due time.
func (t *Tracker[K]) Track(key K, redeliveryCount uint32) {
	t.TrackFor(key, t.backoff.Next(redeliveryCount))
}

// TrackFor is Track with delay d in place of the policy's. A negative d counts as 0.
func (t *Tracker[K]) TrackFor(key K, d time.Duration) { t.queue.Put(key, d) }

// Untrack forgets key and reports whether it was tracked. If it returns true, the key does not come due.
func (t *Tracker[K]) Untrack(key K) bool { return t.queue.Remove(key) }

// Left returns how much of key's delay is left; ok is false if key is not tracked.
func (t *Tracker[K]) Left(key K) (d time.Duration, ok bool) { return t.queue.Left(key) }

// Tracks reports whether key is tracked.
func (t *Tracker[K]) Tracks(key K) bool { return t.queue.Has(key) }

// Len returns the number of tracked keys.
func (t *Tracker[K]) Len() int { return t.queue.Len() }

// Clear forgets all keys.
func (t *Tracker[K]) Clear() { t.queue.Clear() }

// Close forgets all keys and returns when the Tracker's goroutine has ended. After Close no key comes due, and Track does
// nothing.
func (t *Tracker[K]) Close() { t.queue.Close() }
