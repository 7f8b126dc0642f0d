package acktimeout_test

import (
	"fmt"
	"time"

	"github.com/pulsar-redelivery/redelivery/acktimeout"
	"github.com/pulsar-redelivery/redelivery/backoff"
)

// A Tracker with a timer of its own.
func Example() {
	tracker := acktimeout.New[string](10*time.Second, backoff.Exponential{Min: time.Second, Max: time.Minute})
	start := time.Now()
	for count, key := range []string{"first", "second"} { // both were received now
		tracker.TrackFor(key, start.Add(tracker.Delay(uint32(count))))
	}
	tracker.Untrack("second") // it is settled
	for due, ok := tracker.Next(); ok; due, ok = tracker.Next() {
		fmt.Println(due.Sub(start))
		// timer := time.NewTimer(time.Until(due)); <-timer.C
		for _, key := range tracker.Due(due) {
			fmt.Println("redeliver", key)
		}
	}
	// Output:
	// 11s
	// redeliver first
}
