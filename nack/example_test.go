package nack_test

import (
	"fmt"
	"time"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/nack"
)

// A Tracker with a timer of its own.
func Example() {
	tracker := nack.New[string](backoff.Exponential{Min: time.Second, Max: 10 * time.Second})
	start := time.Now()
	for count, key := range []string{"first", "second"} { // both were nacked now
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
	// 1s
	// redeliver first
}
