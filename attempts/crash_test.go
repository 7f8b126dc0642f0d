package attempts

import (
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// crash ends a Log as a killed process does: the Log writes nothing more.
func (l *Log) crash() {
	l.once.Do(func() {
		l.end()
		<-l.ended
		close(l.closing) // last: otherwise the writer might write that the session ends
	})
}

// openAlive opens a Log as openReady does, and makes its session renew a lease.
func openAlive(t *testing.T, client pulsar.Client, topic, name string) *Log {
	t.Helper()
	l := openReady(t, client, topic, name)
	l.KeepAlive()
	return l
}

// The message counts a crash only once its session is known to be lost; until then the message waits. A session that
// lives, or has written that it ended, has crashed nothing.
func TestMessageInAHandlerOfALostSessionCountsACrash(t *testing.T) {
	t.Parallel()
	client, topic := testClient(t), testTopic(t)
	a, b := openAlive(t, client, topic, "a"), openAlive(t, client, topic, "b")
	handleMany(b)
	require.False(t, b.IsCareful(two), "careful though no session has crashed")
	require.NoError(t, a.Begin(t.Context(), one))
	await(t, func() bool { _, ok := b.Find(one); return ok })
	r, ok := b.Arrive(one)
	require.True(t, ok)
	require.Greater(t, time.Until(r.Due), minLease/2, "due while a may have the message")
	require.Zero(t, b.Crashes(one))
	a.crash()
	c := openAlive(t, client, topic, "c") // a supervisor starts it in place of a
	require.True(t, c.IsCareful(two), "not careful though a may be lost, and may have had message two")
	await(t, func() bool { return b.Crashes(one) == 1 && c.Crashes(one) == 1 })
	r, _ = b.Arrive(one)
	require.False(t, r.Due.After(time.Now()))
	require.True(t, b.IsCareful(two))
	require.NoError(t, b.Begin(t.Context(), one))
	require.EqualValues(t, 1, b.Crashes(one), "b's own handler counts as a crash")
	b.Failed(one, 1, 0, "no coffee") // the message did not crash b
	await(t, func() bool { r, _ := c.Find(one); return r.Begun == 0 && r.Count == 1 && r.Crashes == 1 })
	require.NoError(t, b.Begin(t.Context(), one))
	require.NoError(t, b.End(t.Context(), one))
	await(t, func() bool { r, _ := c.Find(one); return r.Begun == 0 && r.Count == 1 && r.Crashes == 1 })
	require.NoError(t, b.End(t.Context(), one), "End without Begin returned an error")
	require.NoError(t, b.Begin(t.Context(), two))
	b.Close()
	await(t, func() bool {
		for _, s := range c.Sessions() {
			if s.ID == b.Session() {
				return s.State == Ended
			}
		}
		return false
	})
	require.Zero(t, c.Crashes(two), "a crash counts though b has written that it ended")
}

// carefulMessages is how many messages a session handles with care at first.
const carefulMessages = int(carefulFirst / carefulEach)

// handleMany makes a session handle more messages than it handles with care.
func handleMany(l *Log) {
	for range 2 * carefulMessages {
		l.IsCareful(one)
	}
}

// A message that crashed another session looks like any other. So a session is careful with its first messages, and
// later while it has little to do.
func TestSessionIsCarefulAtFirstAndWhenIdle(t *testing.T) {
	t.Parallel()
	client, topic := testClient(t), testTopic(t)
	a, b := openAlive(t, client, topic, "a"), openAlive(t, client, topic, "b")
	for range carefulMessages {
		require.True(t, a.IsCareful(one))
	}
	handleMany(a)
	handleMany(b)
	require.False(t, a.IsCareful(one), "careful though busy")
	await(t, func() bool {
		time.Sleep(2 * carefulEach)
		return a.IsCareful(one)
	})
	await(t, func() bool { return len(b.Sessions()) == 2 && b.Sessions()[0].Lease > 0 && b.Sessions()[1].Lease > 0 })
	a.crash()
	await(t, func() bool {
		b.IsCareful(one)
		return b.Stats().Lost == 1
	})
	for range carefulMessages / 2 {
		require.True(t, b.IsCareful(one), "not careful though a may have had the message")
	}
}

// However slow the log is, a session waits for Begin at most a tenth of the time.
func TestCareTakesATenthOfTheTime(t *testing.T) {
	t.Parallel()
	broker := pulsartest.NewServer(t)
	a := openAlive(t, broker.Client(t), testTopic(t), "a")
	handleMany(a)
	broker.SetHook(func(c pulsartest.Command) pulsartest.Verdict {
		if c.Type == "SEND" {
			return pulsartest.Pass.After(100 * time.Millisecond)
		}
		return pulsartest.Pass
	})
	began, waited := time.Now(), time.Duration(0)
	for time.Since(began) < 6*time.Second {
		if a.IsCareful(one) {
			from := time.Now()
			require.NoError(t, a.Begin(t.Context(), one))
			waited += time.Since(from)
		}
		time.Sleep(20 * time.Millisecond)
	}
	require.Less(t, waited, time.Since(began)/4)
	broker.SetHook(nil)
}

func TestNoSessionIsCarefulWhileTheLogDoesNotAnswer(t *testing.T) {
	client, topic := testClient(t), testTopic(t)
	a := openAlive(t, client, topic, "a")
	a.mu.Lock()
	a.own.sent = append(a.own.sent, sent{number: 1 << 60, since: now() - (tooLate + time.Second).Milliseconds()})
	a.mu.Unlock()
	require.False(t, a.IsCareful(one))
}

// Another session had an unknown message (an orphan) if the message comes after newer ones.
func TestOrphansAreHandledWithCare(t *testing.T) {
	t.Parallel()
	client, topic := testClient(t), testTopic(t)
	a := openAlive(t, client, topic, "a")
	handleMany(a)
	for _, entry := range []int64{5, 6, 7} {
		_, ok := a.Arrive(Key{"t", 1, entry, 0})
		require.False(t, ok)
		require.False(t, a.IsCareful(Key{"t", 1, entry, 0}))
	}
	a.Arrive(Key{"t", 1, 3, 0})
	require.True(t, a.IsCareful(Key{"t", 1, 3, 0}))
}

// The session was silent for longer than its lease, for example without a network.
func TestMessageOfASessionThatIsHeardAgainCountsNoCrash(t *testing.T) {
	t.Parallel()
	client, topic := testClient(t), testTopic(t)
	a, b := openAlive(t, client, topic, "a"), openAlive(t, client, topic, "b")
	renewsAt := func(at int64) {
		a.mu.Lock()
		a.sessions.renewal = at
		a.mu.Unlock()
		a.notify()
	}
	require.NoError(t, a.Begin(t.Context(), one))
	await(t, func() bool { return a.Stats().Lag == 0 })
	renewsAt(now() + time.Hour.Milliseconds())
	await(t, func() bool { return b.Crashes(one) == 1 })
	renewsAt(1)
	await(t, func() bool { return b.Crashes(one) == 0 })
	a.Failed(one, 1, 0, "no coffee")
	await(t, func() bool { r, _ := b.Find(one); return r.Count == 1 && r.Crashes == 0 && r.Begun == 0 })
}
