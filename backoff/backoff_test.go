package backoff

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const (
	s = time.Second
	m = time.Minute
)

func TestNextGivesTheDelayOfEachCount(t *testing.T) {
	pip94, err := ParseDelayLevels(DefaultDelayLevels)
	require.NoError(t, err)
	for _, c := range []struct {
		name   string
		policy RedeliveryBackoff
		want   map[uint32]time.Duration
	}{
		{"the zero value", Exponential{},
			map[uint32]time.Duration{0: s, 1: 2 * s, 4: 16 * s, 100: 10 * m}},
		{"1s to 10m by 2", Exponential{s, 10 * m, 2},
			map[uint32]time.Duration{0: s, 1: 2 * s, 4: 16 * s, 100: 10 * m}},
		{"2s to 100m by 5", Exponential{2 * s, 100 * m, 5},
			map[uint32]time.Duration{0: 2 * s, 1: 10 * s, 2: 50 * s, 4: 1250 * s, 100: 6000 * s}},
		{"PIP-130", Exponential{s, 60 * s, 2},
			map[uint32]time.Duration{0: s, 1: 2 * s, 2: 4 * s, 3: 8 * s, 4: 16 * s, 5: 32 * s, 6: 60 * s, 7: 60 * s}},
		{"max is a power", Exponential{s, 64 * s, 2}, map[uint32]time.Duration{5: 32 * s, 6: 64 * s, 7: 64 * s}},
		{"min = max", Exponential{s, s, 2},
			map[uint32]time.Duration{0: s, 1: s, 63: s, 64: s, math.MaxUint32: s}},
		{"the largest count", Exponential{s, 10 * m, 2}, map[uint32]time.Duration{math.MaxUint32: 10 * m}},
		{"longest Max", Exponential{s, math.MaxInt64, 10},
			map[uint32]time.Duration{9: 1e9 * s, 10: math.MaxInt64, math.MaxUint32: math.MaxInt64}},
		{"an invalid policy", Exponential{-s, -m, math.NaN()}, map[uint32]time.Duration{0: 0, 1: 0}},
		{"PIP-94", pip94, map[uint32]time.Duration{0: s, 1: 5 * s, 2: 10 * s, 16: time.Hour,
			17: 2 * time.Hour, 18: 2 * time.Hour, 1000: 2 * time.Hour, math.MaxUint32: 2 * time.Hour}},
		{"no levels", DelayLevels(nil), map[uint32]time.Duration{0: 0, 7: 0}},
		{"fixed", Fixed(m), map[uint32]time.Duration{0: m, math.MaxUint32: m}},
		{"fixed below 0", Fixed(-m), map[uint32]time.Duration{0: 0}},
		{"func", Func(func(n uint32) time.Duration { return time.Duration(n) }), map[uint32]time.Duration{7: 7}},
		{"nil func", Func(nil), map[uint32]time.Duration{7: 0}},
		{"jitter of nil", WithJitter(nil, 0.5), map[uint32]time.Duration{7: 0}},
		{"no jitter", WithJitter(Fixed(m), 0), map[uint32]time.Duration{7: m}},
		{"jitter NaN", WithJitter(Fixed(m), math.NaN()), map[uint32]time.Duration{7: m}},
	} {
		for n, want := range c.want {
			assert.Equal(t, want, c.policy.Next(n), "%s: Next(%d)", c.name, n)
		}
	}
}

func TestExponentialDelaysStayInBoundsAndNeverShrink(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := Exponential{
			Min:        time.Duration(rapid.Int64Range(int64(time.Millisecond), math.MaxInt64).Draw(t, "min")),
			Multiplier: rapid.Float64Range(1.000001, 1e6).Draw(t, "multiplier"),
		}
		e.Max = time.Duration(rapid.Int64Range(int64(e.Min), math.MaxInt64).Draw(t, "max"))
		require.NoError(t, e.Validate())
		n := rapid.Uint32Range(1, math.MaxUint32).Draw(t, "n")
		for _, n := range []uint32{n, n%200 + 1} {
			before, d := e.Next(n-1), e.Next(n)
			require.GreaterOrEqual(t, before, e.Min-e.Min/1e15) // a float64 has 53 bits
			require.GreaterOrEqual(t, d, before)
			require.LessOrEqual(t, d, e.Max)
		}
	})
}

func TestJitterStaysWithinItsFraction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "d"))
		f := rapid.Float64Range(0, 1).Draw(t, "fraction")
		got := float64(WithJitter(Fixed(d), f).Next(0))
		require.GreaterOrEqual(t, got, float64(d)*(1-f)-1)
		require.LessOrEqual(t, got, min(float64(d)*(1+f), math.MaxInt64))
		shortest, longest := WithJitter(Fixed(d), f).(jitter).Spread(d)
		require.LessOrEqual(t, float64(shortest), got)
		require.GreaterOrEqual(t, float64(longest), got)
	})
}

func TestLevelRefusesUnknownLevels(t *testing.T) {
	levels, err := ParseDelayLevels(DefaultDelayLevels)
	require.NoError(t, err)
	require.Len(t, levels, 18)
	for level, want := range map[int]time.Duration{1: s, 3: 10 * s, 18: 2 * time.Hour} {
		d, err := levels.Level(level)
		assert.NoError(t, err)
		assert.Equal(t, want, d, "level %d", level)
	}
	for _, level := range []int{0, -1, 19, math.MaxInt, math.MinInt} {
		_, err := levels.Level(level)
		assert.ErrorContains(t, err, "want 1 to 18", "level %d", level)
	}
}

func TestParseDelayLevelsAcceptsOnlyWholeNumbersWithAUnit(t *testing.T) {
	for in, want := range map[string]DelayLevels{
		"1s  5s":            {s, 5 * s},
		" \t1s\n5s ":        {s, 5 * s},
		"1d":                {24 * time.Hour},
		"250ms 1m 2h":       {250 * time.Millisecond, m, 2 * time.Hour},
		"9223372036s":       {9223372036 * s},
		"0000000000000001s": {s},
	} {
		got, err := ParseDelayLevels(in)
		assert.NoError(t, err, "%q", in)
		assert.Equal(t, want, got, "%q", in)
	}
	for in, quoted := range map[string]string{
		"": `""`, "  ": "empty", "1x": `"1x"`, "1s -1s": `level 2: "-1s"`, "1s,5s": `"1s,5s"`, "1": `"1"`, "s": `"s"`,
		"1.5s": `"1.5s"`, "+1s": `"+1s"`, "0s": `"0s"`, "1S": `"1S"`, "9223372037s": "too long", "1e3s": `"1e3s"`,
		"99999999999999999999s": `"99999999999999999999s"`, "1 s": `"1"`, "0x1s": `"0x1s"`, "1_0s": `"1_0s"`,
	} {
		_, err := ParseDelayLevels(in)
		assert.ErrorContains(t, err, quoted, "%q", in)
	}
}

func FuzzParseDelayLevels(f *testing.F) {
	for _, seed := range []string{DefaultDelayLevels, "", "1x", "-1s", "1s,5s", "1d 1ms", "9223372036854775807ms"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		levels, err := ParseDelayLevels(in)
		if err != nil {
			if levels != nil {
				t.Errorf("%q: levels %v with error %v", in, levels, err)
			}
			return
		}
		if len(levels) == 0 {
			t.Errorf("%q: parsed, but there are no levels", in)
		}
		for i, d := range levels {
			if d <= 0 {
				t.Errorf("%q: level %d is %v", in, i+1, d)
			}
		}
	})
}

func TestScheduleYieldsTheDelayOfEachRedelivery(t *testing.T) {
	var got []time.Duration
	for n, d := range Schedule(Exponential{s, 60 * s, 2}, 8) {
		assert.Equal(t, uint32(len(got)), n)
		got = append(got, d)
	}
	assert.Equal(t, []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s}, got)

	for range Schedule(Fixed(s), -1) {
		t.Error("a negative number of redeliveries yielded a delay")
	}
	for range Schedule(nil, 3) {
		t.Error("a nil policy yielded a delay")
	}
	for n, d := range Schedule(Func(func(uint32) time.Duration { return -s }), 3) {
		assert.Zero(t, d, "a negative delay was not yielded as 0")
		if n == 1 {
			break
		}
	}
}
