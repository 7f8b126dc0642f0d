package backoff_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"

	"github.com/pulsar-redelivery/redelivery/backoff"
)

func TestEveryPolicyServesAsNackBackoffPolicy(t *testing.T) {
	for _, b := range []backoff.RedeliveryBackoff{
		backoff.Exponential{}, backoff.DelayLevels{time.Second}, backoff.Fixed(time.Second),
		backoff.Func(func(uint32) time.Duration { return time.Second }),
		backoff.WithJitter(backoff.Fixed(time.Second), 0),
	} {
		var policy pulsar.NackBackoffPolicy = b
		assert.Equal(t, time.Second, policy.Next(0))
	}
}

func ExampleExponential() {
	policy := backoff.Exponential{Min: time.Second, Max: time.Minute, Multiplier: 2}
	for n, d := range backoff.Schedule(policy, 8) {
		fmt.Println(n, d)
	}
	// Output:
	// 0 1s
	// 1 2s
	// 2 4s
	// 3 8s
	// 4 16s
	// 5 32s
	// 6 1m0s
	// 7 1m0s
}

func ExampleParseDelayLevels() {
	levels, _ := backoff.ParseDelayLevels(backoff.DefaultDelayLevels)
	d, _ := levels.Level(3)
	fmt.Println(d, levels.Next(0), levels.Next(1), levels.Next(1000))
	_, err := levels.Level(19)
	fmt.Println(err)
	// Output:
	// 10s 1s 5s 2h0m0s
	// backoff: delay level is 19, want 1 to 18
}
