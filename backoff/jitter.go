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

// WithJitter spreads the delays of b, so that messages that failed at the same time come back at different times:
//
//	Next(n) = uniform in b.Next(n) · (1 ± fraction)
//
// The fraction is between 0 (no jitter) and 1 (from 0 to twice the delay). Options refuse any other fraction; Next
// clamps it. A delay may exceed b's maximum by up to the fraction.
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

func (j jitter) Validate() error {
	if !(j.fraction >= 0 && j.fraction <= 1) {
		return fmt.Errorf("backoff: jitter fraction is %v, want 0 to 1", j.fraction)
	}
	return nil
}

// Unwrap returns the policy without the jitter.
func (j jitter) Unwrap() RedeliveryBackoff { return j.backoff }

// Spread returns the shortest and the longest delay that the jitter can make of d.
func (j jitter) Spread(d time.Duration) (shortest, longest time.Duration) {
	return scale(d, 1-j.clamped()), scale(d, 1+j.clamped())
}
