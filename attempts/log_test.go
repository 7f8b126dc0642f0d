package attempts

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// testClient returns a client of the real broker that PULSAR_URL names, or of a broker in process.
func testClient(t *testing.T) pulsar.Client {
	t.Helper()
	url := os.Getenv("PULSAR_URL")
	if url == "" {
		return pulsartest.NewServer(t).Client(t)
	}
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: url, Logger: logtest.Client(t)})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func testTopic(t *testing.T) string {
	return fmt.Sprintf("attempts-%s-%d%s", t.Name(), time.Now().UnixNano(), "-ATTEMPTS")
}

func openReady(t *testing.T, client pulsar.Client, topic, name string) *Log {
	t.Helper()
	l, err := Open(client, Options{Topic: topic, Name: name, Logger: logtest.Logger(t)})
	require.NoError(t, err)
	t.Cleanup(l.Close)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	require.NoError(t, l.Ready(ctx))
	return l
}

var (
	one = Key{"persistent://public/default/orders-partition-1", 7, 3, 0}
	two = Key{"persistent://public/default/orders-partition-1", 7, 4, 12}
)

// The other sessions, and later ones, know the records of a session until their messages are settled.
func TestSessionsShareRecords(t *testing.T) {
	t.Parallel()
	client, topic := testClient(t), testTopic(t)
	a, b := openReady(t, client, topic, "a"), openReady(t, client, topic, "b")
	due := time.Now().Add(time.Minute)
	a.Failed(one, 2, time.Minute, "no coffee")
	a.Failed(two, 1, time.Hour, "")
	await(t, func() bool { return b.Stats().Records == 2 && a.Stats().Lag == 0 })
	c := openReady(t, client, topic, "c")
	for _, l := range []*Log{a, b, c} {
		r, ok := l.Find(one)
		require.True(t, ok)
		require.EqualValues(t, 2, r.Count)
		require.Equal(t, "no coffee", r.Cause)
		require.Equal(t, a.Session(), r.Session)
		require.WithinDuration(t, due, r.Due, 3*time.Second)
	}
	require.NoError(t, b.Forget(t.Context(), two))
	c.Settled(one)
	_, ok := c.Find(one)
	require.False(t, ok)
	_, ok = b.Find(one)
	require.True(t, ok, "removed before the acknowledgement has surely reached the broker")
	await(t, func() bool { return a.Stats().Records+b.Stats().Records+c.Stats().Records == 0 })
}

// A session records a failure of a message that another session has settled. The acknowledgement may be lost, so the
// record stays until the retention is over. If the broker got the acknowledgement, the record does no harm: the message
// is not delivered again.
func TestFailureAfterASettlementElsewhereStaysInTheLog(t *testing.T) {
	t.Parallel()
	client, topic := testClient(t), testTopic(t)
	a, b := openReady(t, client, topic, "a"), openReady(t, client, topic, "b")
	a.Failed(one, 1, time.Minute, "")
	await(t, func() bool { _, ok := b.Find(one); return ok })
	settled := time.Now()
	b.Settled(one)
	a.Failed(one, 2, time.Minute, "no coffee") // before the removal is written, three seconds later
	await(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		r, _ := b.state.find(one)
		return r.count == 2
	})
	_, ok := b.Find(one)
	require.False(t, ok && time.Since(settled) < settleDelay/2, "found though it is settled here")
	await(t, func() bool { r, ok := b.Find(one); return ok && r.Count == 2 }) // after the time of the removal
	require.Equal(t, 1, a.Stats().Records)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state.sweep(now()+(defaultRetention+2*time.Minute).Milliseconds(), defaultRetention)
	require.Empty(t, b.state.records)
}

func TestCloseWritesTheRemainingChanges(t *testing.T) {
	client, topic := testClient(t), testTopic(t)
	a := openReady(t, client, topic, "a")
	a.Failed(one, 2, time.Minute, "")
	a.Failed(two, 2, time.Minute, "")
	await(t, func() bool { return a.Stats().Lag == 0 })
	a.Settled(two)
	a.Failed(one, 3, time.Minute, "")
	a.Close()
	b := openReady(t, client, topic, "b")
	records := b.Records()
	require.Len(t, records, 1)
	require.EqualValues(t, 3, records[0].Count)
	for _, s := range b.Sessions() {
		if s.ID == a.Session() {
			require.Equal(t, Ended, s.State)
		}
	}
}

// pulsar-client-go gives the index -1 to messages that are in no batch.
func TestKeyWithIndexMinusOneMeansIndexZero(t *testing.T) {
	client, topic := testClient(t), testTopic(t)
	a, b := openReady(t, client, topic, "a"), openReady(t, client, topic, "b")
	k := two
	k.Index = -1
	a.Failed(k, 2, time.Minute, "")
	await(t, func() bool { _, ok := b.Find(k); return ok })
	k.Index = 0
	r, ok := b.Find(k)
	require.True(t, ok)
	require.Equal(t, k, r.Key)
}

func await(t *testing.T, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 15*time.Second, 5*time.Millisecond)
}

func TestManySessionsOpenAtOnceWithoutFailure(t *testing.T) {
	client, topic := testClient(t), testTopic(t)
	var logs []*Log
	for range 20 {
		l, err := Open(client, Options{Topic: topic})
		require.NoError(t, err)
		t.Cleanup(l.Close)
		logs = append(logs, l)
	}
	for _, l := range logs {
		require.NoError(t, l.Ready(t.Context()))
		require.Zero(t, l.Stats().Failures)
	}
}
