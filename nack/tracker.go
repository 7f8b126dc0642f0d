// Package nack tracks messages that were negatively acknowledged, until their delay is over (PIP-106).
//
// A Tracker knows no broker and no consumer, starts no goroutine and reads no clock: keys go in, due keys come out. The
// caller decides what a key stands for, passes the time in, and redelivers the message. Package acktimeout does the
// same for messages that the application has not settled. A redelivery.Consumer does not use a Tracker: it keeps nacks,
// ack timeouts and requests in one heap of the same kind (internal/clock).
package nack

import (
	"time"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/clock"
)

// DefaultDelay is the delay that a Tracker uses if its policy is nil: one minute, as in all Pulsar clients.
const DefaultDelay = time.Minute

// Tracker holds the keys of negatively acknowledged messages. It hands out each key once, when its delay is over. The
// zero value is not usable. A Tracker takes no lock: no two calls may run at the same time.
type Tracker[K comparable] struct {
	backoff backoff.RedeliveryBackoff
	keys    clock.Keys[K]
}

// New returns a Tracker that delays by b, or by DefaultDelay if b is nil.
func New[K comparable](b backoff.RedeliveryBackoff) *Tracker[K] {
	if b == nil {
		b = backoff.Fixed(DefaultDelay)
	}
	return &Tracker[K]{backoff: b}
}

// Delay returns the delay of a message that was redelivered redeliveryCount times before. It calls the policy, so call
// it with no lock held.
func (t *Tracker[K]) Delay(redeliveryCount uint32) time.Duration {
	return max(0, t.backoff.Next(redeliveryCount))
}

// TrackFor tracks a key until due. If the key is tracked already, it keeps its due time: the second nack of a message
// changes nothing.
func (t *Tracker[K]) TrackFor(key K, due time.Time) {
	if _, tracked := t.keys.At(key); !tracked {
		t.keys.Set(key, due)
	}
}

// Untrack forgets a key and reports whether it was tracked.
func (t *Tracker[K]) Untrack(key K) bool { return t.keys.Stop(key) }

// Due returns the keys whose delay is over at now, in order of time, and forgets them.
func (t *Tracker[K]) Due(now time.Time) []K { return t.keys.Due(now) }

// Next returns when the next key is due; ok is false if none is tracked.
func (t *Tracker[K]) Next() (due time.Time, ok bool) { return t.keys.Next() }

// Len returns the number of tracked keys.
func (t *Tracker[K]) Len() int { return t.keys.Len() }
