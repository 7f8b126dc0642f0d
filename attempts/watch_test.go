package attempts

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// bare returns a Log without a topic, as if it had read its topic to the end. Tests give it frames by hear.
func bare(t *testing.T) *Log {
	l := &Log{o: Options{Logger: slog.New(slog.DiscardHandler), Retention: defaultRetention}, id: 1, opened: now(),
		state:   newState(),
		closing: make(chan struct{}), ready: make(chan struct{}), wake: make(chan struct{}, 1)}
	l.own.byPlace = map[place]*ownChange{}
	l.sessions.foundLost, l.sessions.live, l.sessions.followed = map[SessionID]bool{}, map[SessionID]bool{}, l.opened
	l.life, l.end = context.WithCancel(t.Context())
	l.KeepAlive()
	l.hear(frame{session: l.id, flags: begins | leases, lease: minLease.Milliseconds()})
	return l
}

// hear gives the Log a frame as if it had just been written.
func (l *Log) hear(f frame) {
	l.mu.Lock()
	at := position{1, l.state.last.entry + 1}
	l.mu.Unlock()
	l.take(readFrame{frame: f, at: at, time: now(), now: now()})
}

// renew makes sessions write that they live.
func (l *Log) renew(sessions ...SessionID) {
	for _, id := range sessions {
		l.hear(frame{session: id, flags: leases, lease: minLease.Milliseconds()})
	}
}

// liveFor lets time pass while sessions live.
func (l *Log) liveFor(d time.Duration, sessions ...SessionID) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		l.renew(sessions...)
		time.Sleep(time.Second)
	}
	l.renew(sessions...)
}

// Sessions that have ended or were lost do not count: after a thousand of them this session's lease has not grown, and
// IsCareful charges no more for a message.
func TestEndedSessionsChangeNeitherLeaseNorCare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bare(t)
		for id := range SessionID(1000) {
			l.renew(100 + id)
			if id%2 == 0 {
				l.hear(frame{session: 100 + id, flags: ends})
			}
		}
		l.liveFor(10*time.Second, l.id)
		l.IsCareful(one)
		_, _, _ = l.next(false)
		require.Equal(t, minLease.Milliseconds(), l.sessions.lease)
		spent := l.sessions.spent
		l.IsCareful(one)
		require.Equal(t, carefulEach.Milliseconds(), l.sessions.spent-spent)
	})
}

func TestSessionThatComesBackIsLostAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bare(t)
		for n := range uint64(3) {
			l.liveFor(5*time.Second, l.id, 2)
			l.liveFor(10*time.Second, l.id)
			l.IsCareful(one)
			require.Equal(t, n+1, l.Stats().Lost)
		}
	})
}

// While the log's topic cannot be reached, no session is heard. That is no sign of a crash.
func TestNoSessionIsLostWhileTheLogCannotBeReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bare(t)
		l.hear(frame{session: 2, flags: leases, lease: minLease.Milliseconds(),
			changes: []change{{Key: one, session: 2, begun: 2}}})
		l.liveFor(10*time.Second, l.id, 2)
		for range 300 {
			require.Zero(t, l.Crashes(one))
			l.IsCareful(two)
			time.Sleep(100 * time.Millisecond)
		}
		l.renew(l.id)
		require.Zero(t, l.Crashes(one), "session 2 may not have reached the log again yet")
		time.Sleep(time.Second)
		l.renew(2)
		l.liveFor(10*time.Second, l.id, 2)
		l.IsCareful(two)
		require.Zero(t, l.Crashes(one))
		require.Zero(t, l.Stats().Lost)
		l.liveFor(10*time.Second, l.id)
		require.EqualValues(t, 1, l.Crashes(one))
	})
}

// A reader that starts again gets the last frame again. That does not show that the log can be written. While the log
// can be read but not written, no session counts as lost.
func TestFrameThatIsReadAgainDoesNotShowThatTheLogWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bare(t)
		l.hear(frame{session: 2, flags: leases, lease: minLease.Milliseconds(),
			changes: []change{{Key: one, session: 2, begun: 2}}})
		l.liveFor(10*time.Second, l.id, 2)
		l.renew(l.id)
		last := readFrame{frame: frame{session: l.id, flags: leases, lease: minLease.Milliseconds()}, at: l.state.last,
			time: now()}
		for range 10 {
			time.Sleep(10 * time.Second)
			l.reportFailure(errShort)
			last.now = now()
			l.take(last)
			require.Zero(t, l.Crashes(one))
			require.Error(t, l.failure)
			l.IsCareful(two)
			require.Zero(t, l.Stats().Lost)
		}
	})
}

// The session was not heard since the log was opened, and its clock is wrong.
func TestSessionWithAWrongClockIsFoundLostInTime(t *testing.T) {
	for _, off := range []time.Duration{-time.Minute, time.Minute, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			l := bare(t)
			f := frame{session: 2, flags: leases, lease: minLease.Milliseconds(),
				changes: []change{{Key: one, session: 2, begun: 2}}}
			l.state.apply(readFrame{frame: f, at: position{1, 1}, time: now() + off.Milliseconds() - 1000, now: now()})
			l.updateSize()
			r, ok := l.Arrive(one)
			require.True(t, ok)
			require.LessOrEqual(t, time.Until(r.Due), 2*minLease)
			l.liveFor(time.Until(r.Due), l.id)
			require.EqualValues(t, 1, l.Crashes(one))
		})
	}
}

// All handlers of a Worker wait at the same time for a log that has stalled. Then the session is not careful for a
// minute at most, however many handlers waited.
func TestSessionIsCarefulAgainAfterTheLogStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bare(t)
		var waiting sync.WaitGroup
		for n := range int64(1000) {
			require.True(t, l.IsCareful(one))
			waiting.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_ = l.Begin(ctx, Key{"t", 1, n, 0})
			})
		}
		waiting.Wait()
		l.Reset() // the log answers again
		l.liveFor(3*time.Minute, l.id)
		require.True(t, l.IsCareful(one))
	})
}

// While the log fails, IsCareful returns false at once, not only after a change has stayed unwritten for five seconds.
func TestNoSessionIsCarefulWhileTheLogFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bare(t)
		l.reportFailure(errShort)
		require.False(t, l.IsCareful(one))
		l.renew(l.id)
		require.True(t, l.IsCareful(one))
	})
}

// The message fails before its handler is called, for example at the crash limit without a dead letter topic.
func TestAFailureDoesNotClearTheCrashCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bare(t)
		l.hear(frame{session: 2, flags: leases, lease: minLease.Milliseconds(),
			changes: []change{{Key: one, session: 2, begun: 2}}})
		l.liveFor(10*time.Second, l.id)
		require.EqualValues(t, 1, l.Crashes(one))
		l.Failed(one, 1, 0, "no dead letter topic")
		require.EqualValues(t, 1, l.Crashes(one))
	})
}

// Sessions that write nothing but renewals would make the log grow for ever.
func TestLogWithoutFailedMessagesIsTidied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bare(t)
		for range 20 * tidyMin {
			l.renew(l.id)
		}
		due, at := l.tidying.begins(l.state, now(), 1)
		require.True(t, due || at > 0)
	})
}

// Every session forgets old records, whichever session tidies.
func TestEverySessionForgetsOldRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bare(t)
		l.renew(2)
		l.hear(frame{session: 2, flags: ends, changes: []change{{Key: one, session: 2, count: 1}}})
		time.Sleep(defaultRetention + 2*time.Hour)
		l.renew(l.id)
		mark := l.state.last
		l.hear(frame{session: 3, checkpoint: mark})
		require.Empty(t, l.state.records)
		require.Len(t, l.state.sessions, 2)
	})
}

// Messages that another session had before (orphans) are handled with care. Even if there are many and the log is slow,
// the Worker does not wait before each of them.
func TestOrphansDoNotWaitForASlowLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bare(t)
		handleMany(l)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for l.life.Err() == nil {
				f, _, _ := l.next(false)
				time.Sleep(2 * time.Second)
				if f != nil {
					l.hear(*f)
				}
			}
		}()
		l.Arrive(Key{"t", 1, 1000, 0})
		began := time.Now()
		for entry := range int64(300) {
			k := Key{"t", 1, entry, 0}
			if l.Arrive(k); l.IsCareful(k) {
				require.NoError(t, l.Begin(t.Context(), k))
			}
			time.Sleep(10 * time.Millisecond)
		}
		require.Less(t, time.Since(began), 30*time.Second)
		l.end()
		<-done
	})
}
