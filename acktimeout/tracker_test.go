package acktimeout_test

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/pulsar-redelivery/redelivery/acktimeout"
	"github.com/pulsar-redelivery/redelivery/backoff"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const second = time.Second

// run lets script use a Tracker for ten minutes of virtual time and returns when each key came due.
func run(t *testing.T, timeout time.Duration, b backoff.RedeliveryBackoff,
	script func(*testing.T, *acktimeout.Tracker[string])) map[string][]time.Duration {
	got := map[string][]time.Duration{}
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		tracker := acktimeout.New(timeout, b, func(keys []string) {
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
	policy := backoff.Exponential{Min: second, Max: 60 * second, Multiplier: 2}
	type tracker = acktimeout.Tracker[string]
	type times = map[string][]time.Duration
	for _, c := range []struct {
		name    string
		timeout time.Duration
		policy  backoff.RedeliveryBackoff
		script  func(*testing.T, *tracker)
		want    times
	}{
		{"PIP-130's table", 10 * second, policy, func(t *testing.T, k *tracker) {
			for n := range uint32(8) {
				k.Track(fmt.Sprint(n), n)
			}
		}, times{"0": {11 * second}, "1": {12 * second}, "2": {14 * second}, "3": {18 * second}, "4": {26 * second},
			"5": {42 * second}, "6": {70 * second}, "7": {70 * second}}},
		{"the timeout alone", 10 * second, nil, func(t *testing.T, k *tracker) { k.Track("a", 9) },
			times{"a": {10 * second}}},
		{"settled while the backoff runs", 10 * second, policy, func(t *testing.T, k *tracker) {
			k.Track("a", 0)
			time.Sleep(10*second + 1)
			assert.True(t, k.Untrack("a"))
			assert.False(t, k.Untrack("a"))
		}, times{}},
		{"tracked twice", 10 * second, policy, func(t *testing.T, k *tracker) {
			k.Track("a", 0)
			time.Sleep(5 * second)
			k.Track("a", 3)
			k.TrackFor("a", 0)
			assert.Equal(t, 1, k.Len())
		}, times{"a": {11 * second}}},
		{"began before", 10 * second, policy, func(t *testing.T, k *tracker) {
			k.TrackSince("a", 10*second, 3*second)
			k.TrackSince("b", 10*second, 3*second)
			time.Sleep(2 * second)
			assert.True(t, k.Touch("b"))
		}, times{"a": {7 * second}, "b": {12 * second}}},
		{"touched", 10 * second, policy, func(t *testing.T, k *tracker) {
			k.Track("a", 1)
			k.Track("b", 1)
			time.Sleep(5 * second)
			assert.True(t, k.Touch("a"))
			assert.False(t, k.Touch("c"))
		}, times{"a": {17 * second}, "b": {12 * second}}},
		{"Close with entries", second, policy, func(t *testing.T, k *tracker) {
			k.Track("a", 0)
			k.Close()
			k.Track("b", 0)
			assert.False(t, k.Touch("a"))
			assert.Zero(t, k.Len())
		}, times{}},
		{"cleared", second, policy, func(t *testing.T, k *tracker) { k.Track("a", 0); k.Clear() }, times{}},
		{"a policy below 0", second, backoff.Func(func(uint32) time.Duration { return math.MinInt64 }),
			func(t *testing.T, k *tracker) { k.Track("a", 0) }, times{"a": {second}}},
		{"a policy of 292 years", second, backoff.Fixed(math.MaxInt64),
			func(t *testing.T, k *tracker) { k.Track("a", 0) }, times{}},
		{"a timeout below 0", -second, nil, func(t *testing.T, k *tracker) { k.Track("a", 0) }, times{"a": {0}}},
		{"again and again", 10 * second, policy, func(t *testing.T, k *tracker) {
			for n := range uint32(3) {
				k.Track("a", n)
				time.Sleep(20 * second)
			}
		}, times{"a": {11 * second, 32 * second, 54 * second}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, run(t, c.timeout, c.policy, c.script))
		})
	}
}

// A negative timeout is none, and makes no delay of centuries.
func TestBackoffOfANegativeTimeout(t *testing.T) {
	assert.Zero(t, acktimeout.Backoff(-second, nil).Next(0))
	assert.Equal(t, 2*second, acktimeout.Backoff(-second, backoff.Fixed(2*second)).Next(0))
}

func ExampleTracker() {
	due := make(chan []string)
	policy := backoff.Exponential{Min: 10 * time.Millisecond, Max: time.Second, Multiplier: 4}
	tracker := acktimeout.New(10*time.Millisecond, policy, func(keys []string) { due <- keys })
	defer tracker.Close()

	tracker.Track("timed out for the second time", 1) // by the redelivery count: 1
	tracker.Track("timed out for the first time", 0)
	fmt.Println(<-due)
	fmt.Println(<-due)
	// Output:
	// [timed out for the first time]
	// [timed out for the second time]
}
