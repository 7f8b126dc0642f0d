package backoff

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

type jitter struct {
	backoff  RedeliveryBackoff
	fraction float64
}

// WithJitter spreads the delays of b, so that messages that failed together do not come back together:
//
//	Next(n) = uniform in b.Next(n) · (1 ± fraction)
//
// The fraction is between 0 (no jitter) and 1 (from 0 to twice the delay). Any other fraction is clamped and does not pass
// Validate. With jitter a delay may be shorter or longer than b's, and longer than b's maximum, by up to the fraction.
func WithJitter(b RedeliveryBackoff, fraction float64) RedeliveryBackoff { return jitter{b, fraction} }

func (j jitter) Next(redeliveryCount uint32) time.Duration {
	if j.backoff == nil {
		return 0
	}
	return scale(j.backoff.Next(redeliveryCount), 1+j.clamped()*(2*rand.Float64()-1))
}

func (j jitter) clamped() float64 {
	if !(j.fraction > 0) { // also NaN
		return 0
	}
	return min(j.fraction, 1)
}

func scale(d time.Duration, factor float64) time.Duration {
	scaled := float64(max(0, d)) * factor
	if scaled >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(scaled)
}

// Bounds returns the shortest and the longest delay that b gives for redeliveryCount. They differ only for WithJitter; for any
// other policy both are what Next returns. A negative delay and a nil policy count as 0.
func Bounds(b RedeliveryBackoff, redeliveryCount uint32) (shortest, longest time.Duration) {
	switch b := b.(type) {
	case nil:
		return 0, 0
	case jitter:
		shortest, longest = Bounds(b.backoff, redeliveryCount)
		return scale(shortest, 1-b.clamped()), scale(longest, 1+b.clamped())
	}
	d := max(0, b.Next(redeliveryCount))
	return d, d
}

func (j jitter) Validate() error {
	if !(j.fraction >= 0 && j.fraction <= 1) {
		return fmt.Errorf("backoff: jitter fraction is %v, want 0 to 1", j.fraction)
	}
	return Validate(j.backoff)
}
