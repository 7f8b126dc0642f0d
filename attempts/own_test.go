package attempts

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The broker refuses each frame, so the Log writes them again and again. It still knows how far it lags.
func TestFramesWrittenInVainTakeNoMoreMemory(t *testing.T) {
	c := changes{byPlace: map[place]*ownChange{}}
	const many = 100
	for i := range int64(many) {
		c.put(place{entry: i}, record{})
	}
	began, number := now(), uint64(0)
	for range 50 {
		number++
		places, _ := c.gather(number, began, maxChanges, false)
		require.Len(t, places, many)
		c.requeue(nil)
	}
	kept := 0
	for _, frame := range c.sent {
		kept += len(frame.places)
	}
	require.LessOrEqual(t, kept, many)
	require.GreaterOrEqual(t, c.lag(began+5000).Seconds(), 5.0)
	number++
	c.gather(number, began, maxChanges, false)
	c.echoed(number)
	require.Empty(t, c.byPlace)
	require.Empty(t, c.sent)
	require.Zero(t, c.lag(began+5000))
}

// The log may have records of the settled messages. Those are forgotten nevertheless after a while, except a message
// whose record the Log has read.
func TestSettledMessagesAreForgottenWhileFramesAreWrittenInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 100
		c, read := changes{byPlace: map[place]*ownChange{}}, place{entry: 7}
		known := map[place]record{read: {}}
		for n := range int64(100) {
			for i := range int64(many) {
				c.put(place{entry: n*many + i}, record{})
			}
			_, _ = c.gather(uint64(n)+1, now(), 100*maxChanges, false)
			for i := range int64(many) {
				c.remove(place{entry: n*many + i}, record{}, now()+settleDelay.Milliseconds())
			}
			time.Sleep(10 * time.Second)
			c.requeue(known)
		}
		require.LessOrEqual(t, len(c.byPlace), 8*many)
		require.LessOrEqual(t, len(c.unsent)+len(c.later), 16*many)
		require.True(t, c.byPlace[read].removed)
	})
}

// A frame is read after the change was made. The change is newer nevertheless, since its own frame was not read back.
func TestChangeIsNewerThanFramesReadBeforeItsOwn(t *testing.T) {
	l := newLog(nil, Options{Topic: "log", Retention: defaultRetention, Logger: slog.New(slog.DiscardHandler)}, 7)
	k, frames := Key{Topic: "orders", Ledger: 1}, int64(0)
	take := func(f *frame) {
		frames++
		l.take(readFrame{frame: *f, at: position{ledger: 1, entry: frames}, time: now(), now: now()})
	}
	next := func() *frame {
		f, _, _ := l.next(false)
		require.NotNil(t, f)
		return f
	}
	begun := func() SessionID {
		r, _ := l.Find(k)
		return r.Begun
	}
	l.Begun(k)
	take(next())
	l.Ended(k)
	ended := next()
	l.Begun(k)
	take(ended)
	require.Equal(t, SessionID(7), begun())
	l.Ended(k)
	require.Zero(t, begun())
	take(next())
	require.Zero(t, begun())
}

// The acknowledgement of a settled message was lost with its connection, and another session has failed on the message.
// This session must not write the removal, which would delete the other session's delay.
func TestFailureElsewhereOutlivesALostAcknowledgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bare(t)
		l.hear(frame{session: 2, changes: []change{{Key: one, count: 1, session: 2}}})
		l.Settled(one)
		l.hear(frame{session: 2, changes: []change{{Key: one, count: 2, delay: 10_000, session: 2}}})
		l.hear(frame{session: 3, changes: []change{{Key: two, count: 1, session: 3}}})
		l.Settled(two)
		time.Sleep(settleDelay)
		f, _, _ := l.next(false)
		require.Len(t, f.changes, 1, "want the removal of the other message alone")
		require.Equal(t, two, f.changes[0].Key)
		r, ok := l.Find(one)
		require.True(t, ok)
		require.EqualValues(t, 2, r.Count)
	})
}

// A message fails after Forget was called, and before the frame with the removal is written, or before it is read back.
func TestForgottenMessageThatFailsAtOnceIsCountedAnew(t *testing.T) {
	for name, sent := range map[string]bool{"before the removal is sent": false, "before it is read back": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, other := bare(t), bare(t)
				defer l.end()
				old := frame{session: 2, changes: []change{{Key: one, count: 5, crashes: 3, session: 2}}}
				l.hear(old)
				other.hear(old)
				forgotten := make(chan error, 1)
				go func() { forgotten <- l.Forget(t.Context(), one) }()
				synctest.Wait()
				if sent {
					f, _, _ := l.next(false)
					require.Len(t, f.changes, 1)
				}
				l.Failed(one, 1, time.Minute, "")
				l.Failed(one, 1, time.Minute, "no coffee")
				f, places, _ := l.next(false)
				requireNew := func(l *Log) {
					r, ok := l.Find(one)
					require.True(t, ok)
					require.EqualValues(t, 1, r.Count)
					require.Zero(t, r.Crashes)
					require.Equal(t, "no coffee", r.Cause)
				}
				requireNew(l)
				l.sent(&link{}, f, places, position{1, 9}.id())
				require.NoError(t, <-forgotten)
				decoded, err := decode(f.encode())
				require.NoError(t, err)
				l.hear(decoded)
				other.hear(decoded)
				requireNew(l)
				requireNew(other)
				require.Empty(t, l.own.byPlace)
			})
		})
	}
}

// Forget returns only when the removal is written, even if the message is settled before.
func TestForgottenMessageThatIsSettledIsRemovedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bare(t)
		defer l.end()
		forgotten := make(chan error, 1)
		go func() { forgotten <- l.Forget(t.Context(), one) }()
		synctest.Wait()
		l.Failed(one, 1, time.Minute, "")
		l.Settled(one)
		synctest.Wait()
		require.Empty(t, forgotten)
		f, places, _ := l.next(false)
		require.Equal(t, []change{{Key: one, removed: true, session: l.id}}, f.changes)
		l.sent(&link{}, f, places, position{1, 9}.id())
		require.NoError(t, <-forgotten)
	})
}

func TestFlushWaitsForAMessageThatChangesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bare(t)
		defer l.end()
		flush := func() <-chan error {
			flushed := make(chan error, 1)
			go func() { flushed <- l.Flush(t.Context()) }()
			time.Sleep(10 * time.Millisecond)
			return flushed
		}
		fail := func() { l.Failed(one, 1, time.Minute, "") }
		send := func() frame {
			f, _, _ := l.next(false)
			time.Sleep(10 * time.Millisecond)
			return *f
		}
		fail()
		flushed := flush()
		fail()
		time.Sleep(10 * time.Millisecond)
		require.Empty(t, flushed, "nothing is written")
		l.hear(send())
		require.NoError(t, <-flushed)

		// the message changes whenever a frame is under way
		fail()
		first := send()
		flushed = flush()
		fail()
		second := send()
		fail()
		time.Sleep(10 * time.Millisecond)
		require.Empty(t, flushed, "nothing is read back")
		l.hear(first)
		l.hear(second)
		require.NoError(t, <-flushed)
		require.Len(t, l.own.byPlace, 1, "the last change is not read back")
	})
}

func TestForgetAllWaitsForItsOwnFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bare(t)
		defer l.end()
		forgotten := make(chan error, 1)
		go func() { forgotten <- l.ForgetAll(t.Context()) }()
		synctest.Wait()
		l.hear(frame{session: 2, flags: resets})
		time.Sleep(10 * time.Millisecond)
		require.Empty(t, forgotten, "nothing is written")
		f, _, _ := l.next(false)
		time.Sleep(10 * time.Millisecond)
		require.Empty(t, forgotten, "nothing is read back")
		l.hear(*f)
		require.NoError(t, <-forgotten)
	})
}
