package attempts

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A machine whose clock is a minute behind, or ahead, does not make messages early or late: what its clock is off by shows when something of it is
// read as it is written, and changes what was read before.
func TestClocksOfMachines(t *testing.T) {
	for _, off := range []int64{-60_000, 60_000} {
		s := newState()
		change := []change{{Key: one, count: 1, delay: 5_000, session: 7}}
		s.apply(read{frame: frame{session: 7, changes: change}, at: position{1, 1}, time: 100_000 + off, now: 101_000})
		r, _ := s.find(one)
		require.EqualValues(t, 105_000+off, r.due, "nothing is known of its clock yet")
		s.apply(read{frame: frame{session: 7}, at: position{1, 2}, time: 102_000 + off, now: 102_003, live: true})
		r, _ = s.find(one)
		require.EqualValues(t, 105_003, r.due, "early by nothing, and late by the way of the message")
	}
}

// Where the broker tells when it got a message, its clock is the only one.
func TestClockOfTheBroker(t *testing.T) {
	for _, off := range []int64{-60_000, 60_000} {
		s := newState()
		change := []change{{Key: one, count: 1, delay: 5_000, session: 7}}
		s.apply(read{frame: frame{session: 7, changes: change}, at: position{1, 1}, time: 100_000 + off, now: 101_000, broker: true})
		s.apply(read{frame: frame{session: 8, flags: begins}, at: position{1, 2}, time: 102_000 + off, now: 102_003, live: true, broker: true})
		r, _ := s.find(one)
		require.EqualValues(t, 105_003, r.due)
		s.apply(read{frame: frame{session: 8}, at: position{1, 3}, time: 103_000 + off, now: 103_900, live: true, broker: true})
		r, _ = s.find(one)
		require.EqualValues(t, 105_003, r.due, "a slow message tells nothing")
	}
}
