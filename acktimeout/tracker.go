// Package acktimeout tracks messages that the application has, until they are settled or time out (PIP-130).
//
// A Tracker knows no broker and no consumer, starts no goroutine and reads no clock: keys go in, due keys come out. The
// caller decides what a key stands for, passes the time in, and redelivers the message. Package nack does the same for
// negatively acknowledged messages. A redelivery.Consumer uses only Backoff of this package: it keeps ack timeouts,
// nacks and requests in one heap of the same kind (internal/clock).
package acktimeout

import (
	"math"
	"time"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/clock"
)

// Backoff returns PIP-130's policy: timeout + b.Next(redeliveryCount), or timeout alone if b is nil. Its delay is never
// shorter than timeout, whatever b returns, and never overflows. A negative timeout counts as 0.
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

// Tracker holds the keys of unsettled messages. It hands out each key once, when its timeout is over. The zero value is
// not usable. A Tracker takes no lock: no two calls may run at the same time.
type Tracker[K comparable] struct {
	backoff backoff.RedeliveryBackoff
	keys    clock.Keys[K]
}

// New returns a Tracker with the timeouts of Backoff(timeout, b). A negative timeout counts as 0.
func New[K comparable](timeout time.Duration, b backoff.RedeliveryBackoff) *Tracker[K] {
	return &Tracker[K]{backoff: Backoff(timeout, b)}
}

// Delay returns the timeout of a message that was redelivered redeliveryCount times before. It calls the policy, so
// call it with no lock held.
func (t *Tracker[K]) Delay(redeliveryCount uint32) time.Duration {
	return max(0, t.backoff.Next(redeliveryCount))
}

// TrackFor tracks a key until due. If the key is tracked already, it keeps its due time.
func (t *Tracker[K]) TrackFor(key K, due time.Time) {
	if _, tracked := t.keys.At(key); !tracked {
		t.keys.Set(key, due)
	}
}

// Touch sets a new due time for a key whose message the application is still working on, and reports whether the key is
// tracked.
func (t *Tracker[K]) Touch(key K, due time.Time) bool {
	_, tracked := t.keys.At(key)
	if tracked {
		t.keys.Set(key, due)
	}
	return tracked
}

// Untrack forgets a key and reports whether it was tracked.
func (t *Tracker[K]) Untrack(key K) bool { return t.keys.Stop(key) }

// Due returns the keys whose timeout is over at now, in order of time, and forgets them.
func (t *Tracker[K]) Due(now time.Time) []K { return t.keys.Due(now) }

// Next returns when the next timeout is over; ok is false if no key is tracked.
func (t *Tracker[K]) Next() (due time.Time, ok bool) { return t.keys.Next() }

// Len returns the number of tracked keys.
func (t *Tracker[K]) Len() int { return t.keys.Len() }
