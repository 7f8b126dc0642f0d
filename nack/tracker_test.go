package nack_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/nack"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestTrackerHandsOutEachKeyOnceWhenItIsDue(t *testing.T) {
	tracker := nack.New[string](backoff.Exponential{Min: 100 * time.Millisecond, Max: time.Minute, Multiplier: 2})
	tracker.TrackFor("fifth", start.Add(tracker.Delay(5)))
	tracker.TrackFor("first", start.Add(tracker.Delay(0)))
	due, ok := tracker.Next()
	require.True(t, ok)
	assert.Equal(t, start.Add(100*time.Millisecond), due)
	assert.Empty(t, tracker.Due(due.Add(-1)), "never early")
	assert.Equal(t, []string{"first"}, tracker.Due(due))
	assert.Equal(t, []string{"fifth"}, tracker.Due(start.Add(3200*time.Millisecond)))
	_, ok = tracker.Next()
	assert.False(t, ok)
}

func TestSecondNackDoesNotChangeTheDueTime(t *testing.T) {
	tracker := nack.New[int](nil)
	assert.Equal(t, nack.DefaultDelay, tracker.Delay(7))
	tracker.TrackFor(1, start)
	tracker.TrackFor(1, start.Add(time.Hour))
	due, _ := tracker.Next()
	assert.Equal(t, start, due)
	assert.True(t, tracker.Untrack(1))
	assert.False(t, tracker.Untrack(1))
	assert.Zero(t, tracker.Len())
}

func TestKeysThatAreDueAtTheSameTimeComeInTheOrderOfTrackFor(t *testing.T) {
	tracker := nack.New[int](backoff.Fixed(time.Second))
	for key := range 100 {
		tracker.TrackFor(key, start)
	}
	for key, due := range tracker.Due(start) {
		require.Equal(t, key, due)
	}
}

func TestKeyThatIsDueAtTheZeroTimeMakesNoOtherKeyEarly(t *testing.T) {
	tracker, now := nack.New[string](nil), time.Now()
	tracker.TrackFor("a", time.Time{})
	tracker.TrackFor("b", now.Add(time.Hour))
	require.Equal(t, []string{"a"}, tracker.Due(now.Add(time.Hour-1)))
	require.Equal(t, []string{"b"}, tracker.Due(now.Add(time.Hour)))
}
