package backoff

import (
	"fmt"
	"math"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/durations"
)

// Exponential multiplies the delay with every redelivery, up to a maximum (PIP-106, PIP-130):
//
//	Next(n) = min(Max, Min · Multiplierⁿ)
//
// The zero value waits 1s, 2s, 4s, 8s … 512s, 10m, 10m … (The Java client's minimum is 10s.)
type Exponential struct {
	Min        time.Duration // delay before the first redelivery; 0 means 1s
	Max        time.Duration // longest delay; 0 means 10m
	Multiplier float64       // factor from one delay to the next; 0 means 2
}

func (e Exponential) withDefaults() Exponential {
	if e.Min == 0 {
		e.Min = time.Second
	}
	if e.Max == 0 {
		e.Max = 10 * time.Minute
	}
	if e.Multiplier == 0 {
		e.Multiplier = 2
	}
	return e
}

// Next returns the delay for redeliveryCount. It never overflows. Even if e does not pass Validate, the delay is
// between 0 and Max.
func (e Exponential) Next(redeliveryCount uint32) time.Duration {
	e = e.withDefaults()
	d := float64(e.Min) * math.Pow(e.Multiplier, float64(redeliveryCount))
	if !(d < float64(e.Max)) { // also NaN and +Inf
		return max(0, e.Max)
	}
	return max(0, time.Duration(d))
}

// Validate returns nil if 1 ms ≤ Min ≤ Max and 1 < Multiplier < ∞, where a zero field counts as its default. Otherwise
// the error names the field and its value.
func (e Exponential) Validate() error {
	d := e.withDefaults()
	want := durations.Wanted(d.Min, false)
	switch {
	case want != "":
		return fmt.Errorf("backoff: Exponential.Min is %v, want %s", d.Min, want)
	case d.Max < d.Min:
		return fmt.Errorf("backoff: Exponential.Max is %v, want at least Min, which is %v", d.Max, d.Min)
	case !(d.Multiplier > 1) || math.IsInf(d.Multiplier, 1):
		return fmt.Errorf("backoff: Exponential.Multiplier is %v, want a finite number above 1", d.Multiplier)
	}
	return nil
}
