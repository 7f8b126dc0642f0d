package durations

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestWantedRefusesDurationsWithoutAUnit(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		zero bool
		want string
	}{
		{-1, true, "0 or more"},
		{-1, false, "more than 0"},
		{0, true, ""},
		{0, false, "more than 0"},
		{10, true, "1ms or more (10ns: is the unit missing?)"},
		{10, false, "1ms or more (10ns: is the unit missing?)"},
		{time.Millisecond - 1, true, "1ms or more (999.999µs: is the unit missing?)"},
		{time.Millisecond, false, ""},
		{1<<63 - 1, true, ""},
	} {
		assert.Equal(t, c.want, Wanted(c.d, c.zero), "%v, %v", c.d, c.zero)
	}
}

func TestShortOmitsTrailingZeroes(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 40 * time.Second: "40s", time.Minute: "1m", 90 * time.Second: "1m30s", 2 * time.Hour: "2h",
		2*time.Hour + time.Second: "2h0m1s", 100 * time.Minute: "1h40m", 10 * time.Hour: "10h", 250 * time.Millisecond: "250ms",
	} {
		assert.Equal(t, want, Short(d))
	}
}
