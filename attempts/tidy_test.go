package attempts

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// Sessions tidy the log from time to time, so that later sessions read little more than the records that still count.
// Two sessions may tidy at the same time.
func TestTidiedLogHasOnlyTheRecordsThatCount(t *testing.T) {
	t.Parallel()
	client, topic := testClient(t), testTopic(t)
	a, b := openReady(t, client, topic, "a"), openReady(t, client, topic, "b")
	for round := range uint32(60) {
		for i := range int64(100) {
			a.Failed(Key{one.Topic, 1, i, 0}, round+1, time.Hour, "no coffee")
		}
		await(t, func() bool { return a.Stats().Lag == 0 })
	}
	tidied := func(l *Log) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.state.checkpoint != position{} && l.state.since < 2000
	}
	await(t, func() bool { return tidied(a) && tidied(b) })
	c := openReady(t, client, topic, "c")
	require.Equal(t, 100, c.Stats().Records)
	for _, r := range c.Records() {
		require.EqualValues(t, 60, r.Count)
		require.InDelta(t, time.Hour.Seconds(), time.Until(r.Due).Seconds(), 15)
	}
	names := map[string]bool{}
	for _, s := range c.Sessions() {
		names[s.Name] = true
	}
	require.Equal(t, map[string]bool{"a": true, "b": true, "c": true}, names)
	a.reconnected() // as if both had lost their connections
	b.reconnected()
	await(t, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return !a.tidying.forced && a.tidying.mark == position{}
	})
	d := openReady(t, client, topic, "d")
	require.Equal(t, 100, d.Stats().Records)
}

// The readers have reached the topic's limit of consumers, so the Log cannot subscribe to shorten the topic.
func TestLogThatCannotBeShortenedIsReported(t *testing.T) {
	t.Parallel()
	broker := pulsartest.NewServer(t)
	var said logtest.Buffer
	a, err := Open(broker.Client(t), Options{Topic: testTopic(t), Logger: slog.New(slog.NewTextHandler(&said, nil))})
	require.NoError(t, err)
	defer a.Close()
	require.NoError(t, a.Ready(t.Context()))
	broker.SetHook(func(c pulsartest.Command) pulsartest.Verdict {
		if c.Type == "SUBSCRIBE" && c.Subscription == subscription {
			return pulsartest.Fail("ConsumerBusy", "Topic reached max consumers limit")
		}
		return pulsartest.Pass
	})
	for i := range int64(2 * tidyMin) {
		a.Failed(Key{one.Topic, 1, i % 100, 0}, uint32(i/100)+1, time.Hour, "no coffee")
		if i%100 == 0 {
			await(t, func() bool { return a.Stats().Lag == 0 })
		}
	}
	await(t, func() bool { return strings.Contains(said.String(), "could not be shortened") })
}

func TestHundredThousandRecordsAreReadInFiveSeconds(t *testing.T) {
	if os.Getenv("PULSAR_URL") == "" {
		t.Skip("needs a real broker")
	}
	client, topic := testClient(t), testTopic(t)
	a := openReady(t, client, topic, "a")
	began := time.Now()
	for i := range int64(100_000) {
		a.Failed(Key{one.Topic, 1000 + i/5000, i, 0}, 3, time.Hour, "no coffee")
	}
	require.Eventually(t, func() bool { return a.Stats().Lag == 0 }, time.Minute, 10*time.Millisecond)
	t.Logf("written and read back in %v", time.Since(began))
	a.Close()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began = time.Now()
	b := openReady(t, client, topic, "b")
	took := time.Since(began)
	runtime.GC()
	runtime.ReadMemStats(&after)
	t.Logf("%d bytes of memory a record", (after.HeapAlloc-before.HeapAlloc)/100_000)
	require.Equal(t, 100_000, b.Stats().Records)
	require.Less(t, took, 5*time.Second)
	t.Logf("read in %v", took)
	t.Log(atBroker(t, topic))
}

// After a day in which 200 messages fail again and again, 5 failures a second, the log's subscription has a small
// backlog.
func TestLogOfADayStaysSmall(t *testing.T) {
	if os.Getenv("PULSAR_URL") == "" || os.Getenv("ATTEMPTS_DAY") == "" {
		t.Skip("needs a real broker, a minute, and ATTEMPTS_DAY=1")
	}
	client, topic := testClient(t), testTopic(t)
	a := openReady(t, client, topic, "a")
	const failures = 5 * 24 * 60 * 60
	for n := range int64(failures) {
		k := Key{one.Topic, 1, n % 200, 0}
		a.Failed(k, uint32(n/200)+1, time.Minute, "no coffee")
		if n%20 == 0 { // so that a frame has about as many changes as on a real day
			time.Sleep(200 * time.Microsecond)
		}
	}
	require.Eventually(t, func() bool { return a.Stats().Lag == 0 }, time.Minute, 10*time.Millisecond)
	time.Sleep(3 * time.Second)
	t.Log(atBroker(t, topic))
	began := time.Now()
	b := openReady(t, client, topic, "b")
	require.Equal(t, 200, b.Stats().Records)
	t.Logf("read in %v", time.Since(began))
}

// atBroker returns the sizes and positions in a topic's internalStats.
func atBroker(t *testing.T, topic string) (said []string) {
	r, err := http.Get(fmt.Sprintf("%s/admin/v2/persistent/public/default/%s/internalStats",
		os.Getenv("PULSAR_ADMIN_URL"), topic))
	require.NoError(t, err)
	defer http.DefaultClient.CloseIdleConnections()
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	for part := range strings.SplitSeq(string(body), ",") {
		for _, name := range []string{"totalSize", "numberOfEntries\"", "markDelete", "lastConfirmed", "\"attempts\""} {
			if strings.Contains(part, name) {
				said = append(said, part)
			}
		}
	}
	return said
}

// Go's maps do not shrink by themselves. The Log frees their memory once all messages are settled and the log is
// tidied.
func TestMemoryOfABurstIsFreed(t *testing.T) {
	a := openReady(t, testClient(t), testTopic(t), "a")
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const many = 60_000
	for i := range int64(many) {
		a.Failed(Key{one.Topic, 1, i, 0}, 1, time.Hour, "")
	}
	await(t, func() bool { return a.Stats().Lag == 0 })
	full := heap()
	for i := range int64(many) {
		a.Settled(Key{one.Topic, 1, i, 0})
	}
	var left uint64
	for count, end := uint32(1), time.Now().Add(45*time.Second); time.Now().Before(end); count++ {
		// more failures, so that the log is tidied
		for i := range int64(tidyMin / 5) {
			a.Failed(Key{one.Topic, 2, i, 0}, count, time.Hour, "")
		}
		time.Sleep(200 * time.Millisecond)
		left = heap()
		if left < full/2 {
			break
		}
	}
	require.Less(t, left, full/2)
}
