package clock_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/clock"
)

// Timers are set, moved and stopped at random. A sorted list predicts which timer goes off next.
func TestTimersGoOffInTheOrderOfASortedList(t *testing.T) {
	type entry struct {
		timer *clock.Timer[int]
		at    time.Duration
		order int
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var c clock.Clock[int]
	var all []entry
	timers := make([]clock.Timer[int], 50)
	for i := range timers {
		timers[i].Of = i
	}
	now := time.Duration(0)
	for order := range 20_000 {
		of := &timers[rng.IntN(len(timers))]
		without := slices.DeleteFunc(all, func(e entry) bool { return e.timer == of })
		switch rng.IntN(3) {
		case 0, 1:
			at := now + time.Duration(rng.IntN(20))
			c.Set(of, at)
			all = append(without, entry{of, at, order})
		case 2:
			c.Stop(of)
			all = without
		}
		slices.SortFunc(all, func(a, b entry) int {
			if a.at != b.at {
				return int(a.at - b.at)
			}
			return a.order - b.order
		})
		at, ok := c.Next()
		require.Equal(t, len(all) > 0, ok)
		if ok {
			require.Equal(t, all[0].at, at)
		}
		now += time.Duration(rng.IntN(2))
		for len(all) > 0 && all[0].at <= now {
			require.Same(t, all[0].timer, c.Pop(now))
			all = all[1:]
		}
		require.Nil(t, c.Pop(now))
		require.Len(t, c.Timers(), len(all))
	}
}
