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

// bare returns a Log that has read its topic. The test stands in for the topic, and gives the Log frames.
func bare(t *testing.T) *Log {
	l := &Log{o: Options{Logger: slog.New(slog.DiscardHandler), Retention: defaultRetention}, id: 1, opened: now(),
		state:   newState(),
		closing: make(chan struct{}), ready: make(chan struct{}), wake: make(chan struct{}, 1)}
	l.own.of = map[place]*ownChange{}
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
	l.take(read{frame: f, at: at, time: now(), now: now()})
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

// Sessions that ended or were lost make no session less careful. After a thousand of them, a session handles as many
// messages with care as before, and its lease has not grown.
func TestEndedSessionsDoNotCount(t *testing.T) {
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

// A session that was lost and came back counts again when it is lost again.
func TestASessionIsLostTwice(t *testing.T) {
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

// While the log's topic is away no session is heard, which is no sign that one has crashed.
func TestLogThatIsAwayLosesNoSession(t *testing.T) {
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

// A reader that starts again gets the last frame again. That is no sign that the log works: while the log can be
// reached but not written, no session is lost.
func TestAFrameThatIsReadAgainSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bare(t)
		l.hear(frame{session: 2, flags: leases, lease: minLease.Milliseconds(),
			changes: []change{{Key: one, session: 2, begun: 2}}})
		l.liveFor(10*time.Second, l.id, 2)
		l.renew(l.id)
		last := read{frame: frame{session: l.id, flags: leases, lease: minLease.Milliseconds()}, at: l.state.last,
			time: now()}
		for range 10 {
			time.Sleep(10 * time.Second)
			l.fail(errShort)
			last.now = now()
			l.take(last)
			require.Zero(t, l.Crashes(one))
			require.Error(t, l.failure)
			l.IsCareful(two)
			require.Zero(t, l.Stats().Lost)
		}
	})
}

// A session whose clock is wrong, and which was not heard since the log was opened, is found lost as soon as any other.
func TestALostSessionWithAWrongClock(t *testing.T) {
	for _, off := range []time.Duration{-time.Minute, time.Minute, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			l := bare(t)
			f := frame{session: 2, flags: leases, lease: minLease.Milliseconds(),
				changes: []change{{Key: one, session: 2, begun: 2}}}
			l.state.apply(read{frame: f, at: position{1, 1}, time: now() + off.Milliseconds() - 1000, now: now()})
			l.count()
			r, ok := l.Arrive(one)
			require.True(t, ok)
			require.LessOrEqual(t, time.Until(r.Due), 2*minLease)
			l.liveFor(time.Until(r.Due), l.id)
			require.EqualValues(t, 1, l.Crashes(one))
		})
	}
}

// If all handlers of a Worker wait at the same time for a log that has stalled, the session stops being careful for a
// minute at most, however many handlers waited.
func TestCareComesBack(t *testing.T) {
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

// While the log cannot be reached, no message waits for it, even if the oldest unwritten change is younger than five
// seconds.
func TestNoSessionIsCarefulWhileTheLogFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bare(t)
		l.fail(errShort)
		require.False(t, l.IsCareful(one))
		l.renew(l.id)
		require.True(t, l.IsCareful(one))
	})
}

// A crash counts even if the message fails before its handler is called, for example at the crash limit without a dead
// letter topic.
func TestAFailureKeepsTheCrash(t *testing.T) {
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

// A log without failed messages is tidied too: otherwise sessions that only write that they live would make it grow for
// ever.
func TestAQuietLogIsTidied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bare(t)
		for range 20 * tidyMin {
			l.renew(l.id)
		}
		begins, at := l.tidying.begins(l.state, now(), 1)
		require.True(t, begins || at > 0)
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

// If another session had many messages before, a Worker does not wait for a slow log before each of them.
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
