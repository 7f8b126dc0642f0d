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
// The fraction is from 0, no jitter, to 1, anything from 0 to twice the delay; outside it is clamped and does not pass
// validation. Note that the delay may be shorter than b's by the fraction.
func WithJitter(b RedeliveryBackoff, fraction float64) RedeliveryBackoff { return jitter{b, fraction} }

func (j jitter) Next(redeliveryCount uint32) time.Duration {
	if j.backoff == nil {
		return 0
	}
	d := float64(max(0, j.backoff.Next(redeliveryCount)))
	f := j.fraction
	if !(f > 0) { // also NaN
		f = 0
	}
	d *= 1 + min(f, 1)*(2*rand.Float64()-1)
	if d >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(d)
}

func (j jitter) Validate() error {
	if !(j.fraction >= 0 && j.fraction <= 1) {
		return fmt.Errorf("backoff: jitter fraction is %v, want 0 to 1", j.fraction)
	}
	return Validate(j.backoff)
}
