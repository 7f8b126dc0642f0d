// Package acktimeout tracks messages that the application has, until they are settled or time out (PIP-130).
//
// A Tracker knows no broker and no consumer: keys go in, due keys come out. The caller decides what a key stands for, and redelivers the
// message. The timeout grows by a policy, by the redelivery count that the caller gives: a redelivery.Consumer gives its own count, and
// has one Tracker for all its messages. Package nack does the same for negatively acknowledged messages.
package acktimeout

import (
	"math"
	"time"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/delayqueue"
)

// Backoff returns PIP-130's policy: timeout + b.Next(redeliveryCount), or timeout alone if b is nil. It is never shorter
// than timeout, whatever b returns, and never overflows. A negative timeout counts as 0.
func Backoff(timeout time.Duration, b backoff.RedeliveryBackoff) backoff.RedeliveryBackoff {
	timeout = max(0, timeout)
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

// Tracker holds the keys of unsettled messages. It hands out each key once, exactly when its timeout is over: not early, and not
// on a tick. It is safe for concurrent use.
type Tracker[K comparable] struct {
	backoff backoff.RedeliveryBackoff
	queue   *delayqueue.Queue[K]
}

// New returns a Tracker with the timeouts of Backoff(timeout, b). It calls due with the keys whose timeout is over, in order of
// time. The calls come one at a time, from the Tracker's one goroutine, with no lock held. due must not be nil or panic. It may
// use the Tracker, but must not close it. A negative timeout counts as 0. Close ends the goroutine.
func New[K comparable](timeout time.Duration, b backoff.RedeliveryBackoff, due func([]K)) *Tracker[K] {
	if due == nil {
		panic("acktimeout: due is nil, want a function")
	}
	return &Tracker[K]{Backoff(timeout, b), delayqueue.New(due, true)}
}

// Track starts the timeout of a key whose message has been redelivered redeliveryCount times before. If the key is already
// tracked, it keeps its due time.
func (t *Tracker[K]) Track(key K, redeliveryCount uint32) {
	t.TrackFor(key, t.backoff.Next(redeliveryCount))
}

// TrackFor is Track with timeout d in place of the policy's. A negative d counts as 0.
func (t *Tracker[K]) TrackFor(key K, d time.Duration) { t.queue.Put(key, d) }

// TrackSince is TrackFor with a timeout that began ago before now. Touch restarts the full timeout d.
func (t *Tracker[K]) TrackSince(key K, d, ago time.Duration) { t.queue.PutSince(key, d, ago) }

// Touch restarts the full timeout of key and reports whether key was tracked.
func (t *Tracker[K]) Touch(key K) bool { return t.queue.Restart(key) }

// Untrack forgets key and reports whether it was tracked. If it returns true, the key does not come due.
func (t *Tracker[K]) Untrack(key K) bool { return t.queue.Remove(key) }

// Left returns how much of key's timeout is left; ok is false if key is not tracked.
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
