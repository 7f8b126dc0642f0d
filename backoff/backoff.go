// Package backoff decides how long a message waits before it is delivered again.
//
// A policy is a pure function of the redelivery count: 0 gives the delay before the first redelivery, 1 the delay
// before the second, and so on. Policies keep no state and read no clock, so one value serves any number of consumers
// and goroutines. It serves negative acknowledgements (PIP-106), ack timeouts (PIP-130) and the retry topic (PIP-94)
// alike.
//
// Every policy of this package but [Func] accepts any redelivery count: its delay is between 0 and the policy's
// maximum, and never overflows. Only [WithJitter] may exceed the maximum, by up to its fraction.
package backoff

import (
	"fmt"
	"iter"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/durations"
)

// RedeliveryBackoff gives the delay before a message is delivered again. It has the method set of
// pulsar.NackBackoffPolicy, so each policy of this package is a pulsar.NackBackoffPolicy too.
//
// Next must be safe for concurrent use. A negative delay counts as 0. A Consumer does not recover a panic of Next.
//
// Options that take a policy refuse nil. If the policy has a method Validate() error, they also refuse it when Validate
// fails.
type RedeliveryBackoff interface {
	// Next returns the delay for a message that has been redelivered redeliveryCount times before.
	Next(redeliveryCount uint32) time.Duration
}

// Func makes a function a RedeliveryBackoff. A nil Func delays by 0, and options refuse it.
type Func func(redeliveryCount uint32) time.Duration

// Next returns f(redeliveryCount).
func (f Func) Next(redeliveryCount uint32) time.Duration {
	if f == nil {
		return 0
	}
	return f(redeliveryCount)
}

type fixed time.Duration

// Fixed delays every redelivery by d. A negative d counts as 0. Options refuse a negative d, and a positive d below a
// millisecond, where a unit was probably forgotten.
func Fixed(d time.Duration) RedeliveryBackoff { return fixed(d) }

func (f fixed) Next(uint32) time.Duration { return max(0, time.Duration(f)) }

func (f fixed) Validate() error {
	if want := durations.Wanted(time.Duration(f), true); want != "" {
		return fmt.Errorf("backoff: Fixed delay is %v, want %s", time.Duration(f), want)
	}
	return nil
}

// Schedule yields the delays of a message that keeps failing: the redelivery counts 0 … redeliveries-1, each with its
// delay. It does not wait for the delays. It yields a negative delay as 0, and nothing for a nil policy.
func Schedule(b RedeliveryBackoff, redeliveries int) iter.Seq2[uint32, time.Duration] {
	return func(yield func(uint32, time.Duration) bool) {
		if b == nil {
			return
		}
		for n := range redeliveries {
			if !yield(uint32(n), max(0, b.Next(uint32(n)))) {
				return
			}
		}
	}
}
