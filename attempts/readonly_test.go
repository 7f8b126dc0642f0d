package attempts

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// takeOld makes a Log read a frame that was written some time ago by the writer's clock.
func (l *Log) takeOld(f frame, ago time.Duration) {
	l.take(readFrame{frame: f, at: position{1, l.state.last.entry + 1}, time: now() - ago.Milliseconds(), now: now()})
}

// Three sessions have a lease. One has crashed, one has a clock that is behind, and one was just heard and is silent
// now.
func TestReadyOfAReadOnlyLogFindsLostSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bare(t)
		l.o.ReadOnly, l.sessions.lease, l.caughtUp = true, 0, false
		lease := minLease.Milliseconds()
		const crashed, behind, alive = SessionID(2), SessionID(3), SessionID(4)
		l.takeOld(frame{session: crashed, flags: begins | leases, lease: lease,
			changes: []change{{Key: one, session: crashed, begun: crashed}}}, minLease+time.Second)
		l.takeOld(frame{session: behind, flags: begins | leases, lease: lease}, 30*time.Second)
		l.takeOld(frame{session: alive, flags: begins | leases, lease: lease}, time.Second)
		go func() {
			for range 10 {
				time.Sleep(2 * time.Second)
				l.renew(behind)
			}
		}()
		l.readToEnd()
		began := time.Now()
		require.NoError(t, l.Ready(t.Context()))
		require.InDelta(t, minLease.Seconds(), time.Since(began).Seconds(), 0.1)
		states := map[SessionID]SessionState{}
		for _, s := range l.Sessions() {
			states[s.ID] = s.State
		}
		require.Equal(t, map[SessionID]SessionState{1: Live, crashed: Lost, behind: Live, alive: Lost}, states)
		require.EqualValues(t, 1, l.Records()[0].Crashes, "the lost session does not count as a crash")
		time.Sleep(time.Minute) // the goroutine ends
	})
}

// Neither a read-only Log nor a call whose context is done changes the Log's own records.
func TestRefusedVerbsChangeNothing(t *testing.T) {
	t.Parallel()
	client, topic := testClient(t), testTopic(t)
	a := openReady(t, client, topic, "a")
	a.Failed(one, 2, time.Hour, "no coffee")
	await(t, func() bool { return a.Stats().Lag == 0 })
	l, err := Open(client, Options{Topic: topic, ReadOnly: true})
	require.NoError(t, err)
	defer l.Close()
	require.NoError(t, l.Ready(t.Context()))
	require.ErrorIs(t, l.Forget(t.Context(), one), ErrReadOnly)
	require.ErrorIs(t, l.ForgetAll(t.Context()), ErrReadOnly)
	require.ErrorIs(t, l.Begin(t.Context(), one), ErrReadOnly)
	l.Failed(one, 3, 0, "")
	l.Begun(two)
	l.Settled(one)
	l.Reset()
	require.Len(t, l.Records(), 1)
	require.EqualValues(t, 2, l.Records()[0].Count)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, a.Forget(canceled, one), context.Canceled)
	require.ErrorIs(t, a.ForgetAll(canceled), context.Canceled)
	require.Len(t, a.Records(), 1)
}

func TestForgetAllMakesEverySessionForgetAllRecords(t *testing.T) {
	t.Parallel()
	client, topic := testClient(t), testTopic(t)
	a, b := openReady(t, client, topic, "a"), openReady(t, client, topic, "b")
	a.Failed(one, 2, time.Hour, "no coffee")
	a.Failed(two, 4, time.Hour, "")
	await(t, func() bool { return b.Stats().Records == 2 && a.Stats().Lag == 0 })
	require.NoError(t, b.ForgetAll(t.Context()))
	await(t, func() bool { return a.Stats().Records == 0 })
	require.Empty(t, openReady(t, client, topic, "c").Records())
}

// The connection is lost while the Log asks for the last message.
func TestReadOnlyLogEndsWithCloseWhileTheBrokerIsAway(t *testing.T) {
	t.Parallel()
	server, topic := pulsartest.NewServer(t), testTopic(t)
	asked := make(chan struct{})
	server.SetHook(func(c pulsartest.Command) pulsartest.Verdict {
		if c.Type == "GET_LAST_MESSAGE_ID" && strings.HasSuffix(c.Subscription, "-2") { // the reader that follows
			server.RefuseConnections(true)
			close(asked)
			return pulsartest.Disconnect
		}
		return pulsartest.Pass
	})
	l, err := Open(server.Client(t), Options{Topic: topic, ReadOnly: true})
	require.NoError(t, err)
	<-asked
	time.Sleep(time.Second) // now the request waits in pulsar-client-go, which reconnects
	l.Close()
	select {
	case <-l.ended:
	case <-time.After(20 * time.Second):
		require.Fail(t, "the Log has not ended")
	}
	server.SetHook(nil)
	server.RefuseConnections(false)
}
