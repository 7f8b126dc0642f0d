// Package acktimeout tracks messages that the application holds, until they are settled or time out (PIP-130).
//
// A Tracker knows no broker and no consumer: keys go in, due keys come out. What a key is, and what redelivery means, is
// its owner's business. Package nack is its twin for messages that were negatively acknowledged.
package acktimeout

import (
	"math"
	"time"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/delayqueue"
)

// Backoff returns PIP-130's policy: timeout + b.Next(redeliveryCount), or timeout alone if b is nil. It is never shorter
// than timeout, whatever b returns, and never overflows.
func Backoff(timeout time.Duration, b backoff.RedeliveryBackoff) backoff.RedeliveryBackoff {
	if b == nil {
		return backoff.Fixed(timeout)
	}
	return backoff.Func(func(redeliveryCount uint32) time.Duration {
		d := max(0, b.Next(redeliveryCount))
		if d > math.MaxInt64-timeout {
			return math.MaxInt64
		}
		return timeout + d
	})
}

// Tracker holds keys of unsettled messages and hands each out once, when its timeout is over: exactly then, neither early
// nor on a tick. Any number of goroutines may use it.
type Tracker[K comparable] struct {
	backoff backoff.RedeliveryBackoff
	queue   *delayqueue.Queue[K]
}

// New returns a Tracker with the timeouts of Backoff(timeout, b), which calls due with the keys whose timeout is over, in
// order of time. Calls come one at a time, from the Tracker's one goroutine, outside any lock; due may use the Tracker but
// not close it. A timeout below 0 counts as 0. Close ends the goroutine.
func New[K comparable](timeout time.Duration, b backoff.RedeliveryBackoff, due func([]K)) *Tracker[K] {
	return &Tracker[K]{Backoff(max(0, timeout), b), delayqueue.New(due, true)}
}

// Track starts the timeout of a key whose message has been redelivered redeliveryCount times before. A key that is tracked
// already keeps its due time.
func (t *Tracker[K]) Track(key K, redeliveryCount uint32) {
	t.TrackFor(key, t.backoff.Next(redeliveryCount))
}

// TrackFor is Track with a timeout of its own. A negative one counts as 0.
func (t *Tracker[K]) TrackFor(key K, d time.Duration) { t.queue.Put(key, d) }

// Touch restarts the timeout of key with its full length and reports whether key was tracked.
func (t *Tracker[K]) Touch(key K) bool { return t.queue.Restart(key) }

// Untrack forgets key and reports whether it was tracked. After a true answer key does not come due.
func (t *Tracker[K]) Untrack(key K) bool { return t.queue.Remove(key) }

// Left returns how much of key's timeout is left; ok is false if key is not tracked.
func (t *Tracker[K]) Left(key K) (d time.Duration, ok bool) { return t.queue.Left(key) }

// Tracks reports whether key is tracked.
func (t *Tracker[K]) Tracks(key K) bool { return t.queue.Has(key) }

// Len returns the number of tracked keys.
func (t *Tracker[K]) Len() int { return t.queue.Len() }

// Clear forgets all keys.
func (t *Tracker[K]) Clear() { t.queue.Clear() }

// Close forgets all keys and returns when the Tracker's goroutine has ended. Nothing comes due afterwards, and tracking
// does nothing.
func (t *Tracker[K]) Close() { t.queue.Close() }
