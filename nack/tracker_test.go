package nack_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/nack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run lets script use a Tracker for ten minutes of virtual time and returns when each key came due.
func run(t *testing.T, b backoff.RedeliveryBackoff, script func(*testing.T, *nack.Tracker[string])) map[string][]time.Duration {
	got := map[string][]time.Duration{}
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		tracker := nack.New(b, func(keys []string) {
			for _, k := range keys {
				got[k] = append(got[k], time.Since(start))
			}
		})
		script(t, tracker)
		time.Sleep(10 * time.Minute)
		tracker.Close()
	})
	return got
}

func TestTracker(t *testing.T) {
	policy := backoff.Exponential{Min: 100 * time.Millisecond, Max: time.Minute, Multiplier: 2}
	type times = map[string][]time.Duration
	for _, c := range []struct {
		name   string
		policy backoff.RedeliveryBackoff
		script func(*testing.T, *nack.Tracker[string])
		want   times
	}{
		{"a long delay, then a short one", policy, func(t *testing.T, k *nack.Tracker[string]) {
			k.Track("n=5", 5)
			k.Track("n=0", 0)
		}, times{"n=5": {3200 * time.Millisecond}, "n=0": {100 * time.Millisecond}}},
		{"tracked twice", policy, func(t *testing.T, k *nack.Tracker[string]) {
			k.Track("a", 1)
			time.Sleep(150 * time.Millisecond)
			k.Track("a", 1)
			k.TrackFor("a", 0)
			assert.Equal(t, 1, k.Len())
		}, times{"a": {200 * time.Millisecond}}},
		{"Close with entries", policy, func(t *testing.T, k *nack.Tracker[string]) {
			k.Track("a", 0)
			k.Close()
			k.Track("b", 0)
			assert.Zero(t, k.Len())
		}, times{}},
		{"untracked", policy, func(t *testing.T, k *nack.Tracker[string]) {
			k.Track("a", 0)
			k.Track("b", 0)
			assert.True(t, k.Untrack("a"))
			assert.False(t, k.Untrack("a"))
		}, times{"b": {100 * time.Millisecond}}},
		{"cleared", policy, func(t *testing.T, k *nack.Tracker[string]) { k.Track("a", 0); k.Clear() }, times{}},
		{"a delay of its own, a negative one", policy, func(t *testing.T, k *nack.Tracker[string]) {
			k.TrackFor("a", time.Second)
			k.TrackFor("b", -time.Second)
		}, times{"a": {time.Second}, "b": {0}}},
		{"no policy", nil, func(t *testing.T, k *nack.Tracker[string]) { k.Track("a", 7) }, times{"a": {time.Minute}}},
		{"a policy below 0", backoff.Func(func(uint32) time.Duration { return -1 }),
			func(t *testing.T, k *nack.Tracker[string]) { k.Track("a", 0) }, times{"a": {0}}},
		{"a policy of 292 years", backoff.Fixed(1<<63 - 1),
			func(t *testing.T, k *nack.Tracker[string]) { k.Track("a", 0) }, times{}},
		{"again and again", policy, func(t *testing.T, k *nack.Tracker[string]) {
			for n := range uint32(4) {
				k.Track("a", n)
				time.Sleep(time.Second)
			}
		}, times{"a": {100 * time.Millisecond, 1200 * time.Millisecond, 2400 * time.Millisecond, 3800 * time.Millisecond}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, run(t, c.policy, c.script))
		})
	}
}

func ExampleTracker() {
	due := make(chan []string)
	policy := backoff.Exponential{Min: 10 * time.Millisecond, Max: time.Second, Multiplier: 4}
	tracker := nack.New(policy, func(keys []string) { due <- keys })
	defer tracker.Close()

	tracker.Track("failed for the second time", 1) // by the redelivery count: 1
	tracker.Track("failed for the first time", 0)
	fmt.Println(<-due)
	fmt.Println(<-due)
	// Output:
	// [failed for the first time]
	// [failed for the second time]
}
