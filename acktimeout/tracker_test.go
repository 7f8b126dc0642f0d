package acktimeout_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pulsar-redelivery/redelivery/acktimeout"
	"github.com/pulsar-redelivery/redelivery/backoff"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// The first policy is the example of PIP-130.
func TestBackoffAddsToTheTimeout(t *testing.T) {
	policy := acktimeout.Backoff(10*time.Second, backoff.Exponential{Min: time.Second, Max: time.Minute, Multiplier: 2})
	for count, want := range []time.Duration{11, 12, 14, 18, 26, 42, 70, 70} {
		assert.Equal(t, want*time.Second, policy.Next(uint32(count)))
	}
	assert.Equal(t, time.Second, acktimeout.Backoff(time.Second, nil).Next(3))
	assert.Equal(t, time.Second, acktimeout.Backoff(time.Second,
		backoff.Func(func(uint32) time.Duration { return -1 })).Next(0))
	assert.Equal(t, time.Duration(math.MaxInt64), acktimeout.Backoff(time.Second, backoff.Fixed(math.MaxInt64)).Next(0))
	assert.Zero(t, acktimeout.Backoff(-1, nil).Next(0))
}

func TestTrackerHandsOutEachKeyOnceWhenItIsDue(t *testing.T) {
	tracker := acktimeout.New[string](10*time.Second,
		backoff.Exponential{Min: time.Second, Max: time.Minute, Multiplier: 2})
	tracker.TrackFor("a", start.Add(tracker.Delay(2)))
	assert.Empty(t, tracker.Due(start.Add(14*time.Second-1)), "never early")
	assert.Equal(t, []string{"a"}, tracker.Due(start.Add(14*time.Second)))
	assert.Zero(t, tracker.Len())
}

func TestTouchMovesTheDueTime(t *testing.T) {
	tracker := acktimeout.New[string](time.Second, nil)
	assert.False(t, tracker.Touch("a", start))
	tracker.TrackFor("a", start)
	tracker.TrackFor("a", start.Add(time.Minute))
	assert.True(t, tracker.Touch("a", start.Add(time.Hour)))
	due, ok := tracker.Next()
	assert.True(t, ok)
	assert.Equal(t, start.Add(time.Hour), due)
	assert.True(t, tracker.Untrack("a"))
	assert.False(t, tracker.Untrack("a"))
}
