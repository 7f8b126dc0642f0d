package attempts

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func drawRecord(t *rapid.T) record {
	return record{
		at:      position{1, rapid.Int64Range(1, 4).Draw(t, "entry")},
		due:     rapid.Int64Range(0, 3).Draw(t, "due"),
		written: rapid.Int64Range(0, 3).Draw(t, "written"),
		count:   rapid.Uint32Range(0, 2).Draw(t, "count"),
		crashes: rapid.Uint32Range(0, 2).Draw(t, "crashes"),
	}
}

// Records are drawn at few positions. Two records with equal counts and crashes at one position would have no order,
// but a log never has two records of a message at one position.
func TestJoinDependsNeitherOnOrderNorOnRepetition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := drawRecord(t), drawRecord(t), drawRecord(t)
		require.Equal(t, join(a, b), join(b, a))
		require.Equal(t, join(a, join(b, c)), join(join(a, b), c))
		require.Equal(t, a, join(a, a))
		j := join(a, b)
		require.GreaterOrEqual(t, j.count, max(a.count, b.count))
		require.GreaterOrEqual(t, j.crashes, max(a.crashes, b.crashes))
	})
}

func TestJoinKeepsTheHigherCountAndTheLaterDueTime(t *testing.T) {
	early, late := record{count: 2, due: 10, cause: "a"}, record{count: 2, due: 20}
	require.Equal(t, record{count: 2, due: 20, cause: "a"}, join(early, late), "the later due time of the same count")
	require.EqualValues(t, 5, join(record{count: 3, due: 5}, late).due, "the due time of the higher count")
}

func TestRecordExpiresOneRetentionAfterItsDueTime(t *testing.T) {
	day := (24 * time.Hour).Milliseconds()
	r := record{due: 1000, written: 10}
	require.False(t, r.isExpired(1000+day, defaultRetention))
	require.True(t, r.isExpired(1001+day, defaultRetention))
}

// Two sessions tidy at the same time. One began before a message was removed, and the other overtakes it.
func TestOvertakenCopiesDoNotBringARemovedMessageBack(t *testing.T) {
	s := newState()
	at := func(entry int64, f frame) { s.apply(readFrame{frame: f, at: position{1, entry}}) }
	at(1, frame{changes: []change{{Key: one, count: 1}}})
	at(2, frame{session: 1}) // the mark of the first session
	at(3, frame{changes: []change{{Key: one, removed: true}}})
	at(4, frame{session: 2}) // the mark of the second session, which has nothing to copy
	at(5, frame{session: 2, checkpoint: position{1, 4}})
	at(6, frame{session: 1, flags: copies, asOf: position{1, 2}, changes: []change{{Key: one, count: 1}}})
	require.Empty(t, s.records)
}

// While one session cannot reach the log, another removes a record and tidies the log, and the broker deletes the
// removal. The first session must not copy the record into the log again.
func TestSessionThatMissedARemovalForgetsTheRecord(t *testing.T) {
	s := newState()
	at := func(entry int64, f frame) { s.apply(readFrame{frame: f, at: position{1, entry}}) }
	at(1, frame{changes: []change{{Key: one, count: 1}, {Key: two, count: 1}}})
	// the removal of one and the mark were deleted
	at(4, frame{session: 1, flags: copies, asOf: position{1, 3}, changes: []change{{Key: two, count: 1}}})
	at(5, frame{session: 1, checkpoint: position{1, 3}})
	_, ok := s.find(one)
	require.False(t, ok)
	_, ok = s.find(two)
	require.True(t, ok)
}
