// Package policies checks and measures policies of package backoff and of applications.
package policies

import (
	"errors"
	"fmt"
	"time"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/durations"
)

// jitter is the policy that backoff.WithJitter returns.
type jitter interface {
	backoff.RedeliveryBackoff
	Unwrap() backoff.RedeliveryBackoff
	Spread(d time.Duration) (shortest, longest time.Duration)
}

// Validate returns an error for a policy with a wrong value, also within a jitter.
func Validate(b backoff.RedeliveryBackoff) (err error) {
	defer func() {
		if v := recover(); v != nil { // for example that of a nil *Exponential
			err = fmt.Errorf("backoff: policy %T: Validate panics: %v", b, v)
		}
	}()
	switch b := b.(type) {
	case nil:
		return errors.New("backoff: policy is nil, want a RedeliveryBackoff")
	case backoff.Func:
		if b == nil {
			return errors.New("backoff: Func is nil, want a function")
		}
	case backoff.DelayLevels:
		return levels(b)
	case interface{ Validate() error }:
		err = b.Validate()
	}
	if j, ok := b.(jitter); ok && err == nil {
		return Validate(j.Unwrap())
	}
	return err
}

func levels(l backoff.DelayLevels) error {
	if len(l) == 0 {
		return errors.New("backoff: DelayLevels are empty, want at least one level")
	}
	for i, d := range l {
		if want := durations.Wanted(d, true); want != "" {
			return fmt.Errorf("backoff: delay level %d is %v, want %s", i+1, d, want)
		}
	}
	return nil
}

// Bounds returns the shortest and the longest delay that b gives for redeliveryCount. They differ only for
// backoff.WithJitter; for any other policy both are the result of Next. A negative delay and a nil policy count as 0.
func Bounds(b backoff.RedeliveryBackoff, redeliveryCount uint32) (shortest, longest time.Duration) {
	switch b := b.(type) {
	case nil:
		return 0, 0
	case jitter:
		shortest, longest = Bounds(b.Unwrap(), redeliveryCount)
		shortest, _ = b.Spread(shortest)
		_, longest = b.Spread(longest)
		return shortest, longest
	}
	d := max(0, b.Next(redeliveryCount))
	return d, d
}
