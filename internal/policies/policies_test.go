package policies

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pulsar-redelivery/redelivery/backoff"
)

const (
	s = time.Second
	m = time.Minute
)

func TestValidateNamesTheInvalidField(t *testing.T) {
	for _, c := range []struct {
		policy backoff.RedeliveryBackoff
		want   string // in the error; empty for none
	}{
		{backoff.Exponential{}, ""},
		{(*backoff.Exponential)(nil), "policy *backoff.Exponential: Validate panics"},
		{backoff.Exponential{Min: s, Max: s, Multiplier: 1.5}, ""},
		{backoff.Exponential{Max: s}, ""},
		{backoff.Exponential{Min: 10 * s, Max: 5 * s, Multiplier: 2}, "Exponential.Max is 5s"},
		{backoff.Exponential{Max: s / 2}, "Exponential.Max is 500ms"},
		{backoff.Exponential{Min: -s}, "Exponential.Min is -1s"},
		{backoff.Exponential{Max: -s}, "Exponential.Max is -1s"},
		{backoff.Exponential{Multiplier: 1}, "Exponential.Multiplier is 1"},
		{backoff.Exponential{Multiplier: -2}, "Exponential.Multiplier is -2"},
		{backoff.Exponential{Multiplier: math.NaN()}, "Exponential.Multiplier is NaN"},
		{backoff.Exponential{Multiplier: math.Inf(1)}, "Exponential.Multiplier is +Inf"},
		{backoff.DelayLevels{s}, ""},
		{backoff.DelayLevels{}, "empty"},
		{backoff.DelayLevels{s, -s}, "delay level 2 is -1s"},
		{backoff.Fixed(0), ""},
		{backoff.Fixed(-s), "Fixed delay is -1s"},
		{backoff.Func(nil), "Func is nil"},
		{backoff.Func(func(uint32) time.Duration { return 0 }), ""},
		{backoff.WithJitter(backoff.Fixed(s), 1), ""},
		{backoff.WithJitter(backoff.Fixed(s), 1.1), "jitter fraction is 1.1"},
		{backoff.WithJitter(backoff.Fixed(s), math.NaN()), "jitter fraction is NaN"},
		{backoff.WithJitter(nil, 0.1), "policy is nil"},
		{backoff.WithJitter(backoff.Fixed(-s), 0.1), "Fixed delay is -1s"},
		{nil, "policy is nil"},
	} {
		err := Validate(c.policy)
		if c.want == "" {
			assert.NoError(t, err, "%#v", c.policy)
		} else {
			assert.ErrorContains(t, err, c.want, "%#v", c.policy)
		}
	}
}

func TestBoundsAreTheShortestAndTheLongestDelay(t *testing.T) {
	for _, c := range []struct {
		policy            backoff.RedeliveryBackoff
		shortest, longest time.Duration
	}{
		{nil, 0, 0},
		{backoff.Fixed(m), m, m},
		{backoff.Fixed(-m), 0, 0},
		{backoff.Func(func(uint32) time.Duration { return -1 }), 0, 0},
		{backoff.WithJitter(backoff.Fixed(m), 0.5), 30 * s, 90 * s},
		{backoff.WithJitter(backoff.Fixed(m), 2), 0, 2 * m},
		{backoff.WithJitter(backoff.Fixed(m), math.NaN()), m, m},
		{backoff.WithJitter(backoff.WithJitter(backoff.Fixed(m), 0.5), 0.5), 15 * s, 135 * s},
		{backoff.WithJitter(backoff.Fixed(math.MaxInt64), 1), 0, math.MaxInt64},
		{backoff.WithJitter(nil, 1), 0, 0},
		{backoff.WithJitter(backoff.DelayLevels{s, m}, 0.5), 30 * s, 90 * s},
	} {
		shortest, longest := Bounds(c.policy, 1)
		assert.Equal(t, []time.Duration{c.shortest, c.longest}, []time.Duration{shortest, longest}, "%#v", c.policy)
	}
}
