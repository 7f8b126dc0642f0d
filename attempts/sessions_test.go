package attempts

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAgainKnowsTheDelaysOfOtherSessionsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bare(t)
		_, ok := l.Again(one)
		require.False(t, ok)
		l.Failed(one, 1, time.Second, "")
		r, ok := l.Again(one)
		require.True(t, ok)
		require.EqualValues(t, 1, r.Count)
		require.LessOrEqual(t, time.Until(r.Due), time.Duration(0), "the delay of this session's own failure counts")
		l.hear(frame{session: 7, changes: []change{{Key: one, count: 1, delay: time.Minute.Milliseconds(), session: 7}}})
		r, _ = l.Again(one)
		require.Greater(t, time.Until(r.Due), 59*time.Second)
	})
}

// A consumer that failed on a message gets another copy. The copy waits until the Log knows whether the session that
// has the message in a handler lives.
func TestAgainWaitsForASessionThatMayHaveTheMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bare(t)
		l.Failed(one, 1, time.Second, "")
		l.hear(frame{session: 7, flags: begins | leases, lease: minLease.Milliseconds()})
		l.hear(frame{session: 7, changes: []change{{Key: one, count: 1, session: 7, begun: 7}}})
		r, _ := l.Again(one)
		require.Greater(t, time.Until(r.Due), minLease/2)
	})
}
