package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
)

// The only properties that pulsar-client-go adds to a letter say where the letter came from.
func TestLettersOfThePlainClientAreReplayed(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	b.publish(pulsar.ProducerOptions{Topic: tp.origin}, 1,
		&pulsar.ProducerMessage{Payload: []byte("x"), Key: "k", Properties: map[string]string{"own": "1"}})
	c, err := b.client.Subscribe(pulsar.ConsumerOptions{Topic: tp.origin, SubscriptionName: sub, Type: pulsar.Shared,
		NackRedeliveryDelay: 100 * time.Millisecond, DLQ: &pulsar.DLQPolicy{MaxDeliveries: 1, DeadLetterTopic: tp.dlq}})
	require.NoError(t, err)
	defer c.Close()
	msg, err := c.Receive(waittest.Context(t))
	require.NoError(t, err)
	c.Nack(msg)
	d := b.open(tp.dlq)
	require.Eventually(t, func() bool { return len(peek(t, d)) == 1 }, 20*time.Second, 100*time.Millisecond)
	l := peek(t, d)[0]
	assert.Equal(t, tp.origin, l.Origin)
	assert.Equal(t, sub, l.Subscription)
	assert.NotEmpty(t, l.OriginID)
	assert.Empty(t, l.Reason)
	_, err = d.Replay(bg, deadletter.ReplayOptions{})
	require.NoError(t, err)
	got := b.receive(tp.retry)
	require.Len(t, got, 1)
	assert.Equal(t, "x", string(got[0].Payload()))
	assert.Equal(t, "k", got[0].Key())
	assert.Equal(t, "1", got[0].Properties()["own"])
}

// The letters are of this library's Consumer, and say why they died. When the cause is removed, all letters are
// processed.
func TestReplayWithACanaryStopsWhileTheCauseLasts(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	const n = 40
	var orders []*pulsar.ProducerMessage
	for i := range n {
		orders = append(orders, &pulsar.ProducerMessage{Payload: fmt.Append(nil, i), Key: fmt.Sprint(i % 3),
			Properties: map[string]string{"own": "1"}})
	}
	b.publish(pulsar.ProducerOptions{Topic: tp.origin}, 7, orders...)
	var down atomic.Bool
	down.Store(true)
	var mu sync.Mutex
	processed := map[string]int{}
	c, err := redelivery.Subscribe(b.client,
		pulsar.ConsumerOptions{Topic: tp.origin, SubscriptionName: sub, Type: pulsar.Shared, RetryEnable: true,
			DLQ: &pulsar.DLQPolicy{MaxDeliveries: 2, DeadLetterTopic: tp.dlq, RetryLetterTopic: tp.retry,
				InitialSubscriptionName: "audit"}},
		redelivery.WithNackRedeliveryDelay(2*time.Second),
		redelivery.WithReconsumeBackoff(backoff.Fixed(100*time.Millisecond)),
		redelivery.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(bg)
	var handler sync.WaitGroup
	handler.Go(func() {
		for {
			msg, err := c.Receive(ctx)
			if err != nil {
				return
			}
			if down.Load() {
				c.NackWithReason(msg, fmt.Errorf("order %s: %w", msg.Payload(),
					&net.OpError{Op: "dial", Err: errors.New("refused")}))
				continue
			}
			mu.Lock()
			processed[string(msg.Payload())]++
			mu.Unlock()
			_ = c.Ack(msg)
		}
	})
	defer c.Close()
	defer handler.Wait()
	defer stop()

	d := b.open(tp.dlq)
	require.Eventually(t, func() bool { return len(peek(t, d)) == n }, 30*time.Second, 200*time.Millisecond)
	groups, err := d.Groups(bg, deadletter.Filter{})
	require.NoError(t, err)
	require.Len(t, groups, 1)
	assert.Equal(t, "order <n>: dial: refused", groups[0].Reason)
	assert.Equal(t, "*net.OpError", groups[0].Type)
	assert.Equal(t, tp.origin, groups[0].Origin)
	assert.Equal(t, sub, groups[0].Subscription)

	report, err := d.Replay(bg, deadletter.ReplayOptions{Canary: 5})
	require.ErrorIs(t, err, deadletter.ErrPoison)
	require.ErrorContains(t, err, "*net.OpError: order ")
	require.Equal(t, 5, report.Done)
	require.Eventually(t, func() bool { return len(peek(t, d)) == n }, 30*time.Second, 200*time.Millisecond,
		"the letters of the canary did not come back")
	down.Store(false)
	for done := 0; done < n; { // first the rest of the first run, then the letters that died during that run
		report, err := d.Replay(bg, deadletter.ReplayOptions{Canary: 5})
		require.NoError(t, err)
		require.NotZero(t, report.Done)
		done += report.Done
	}
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(processed) == n
	}, 30*time.Second, 50*time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	for payload, times := range processed {
		assert.Equal(t, 1, times, payload)
	}
	require.Zero(t, b.backlog(tp.dlq, own))
}

func TestLettersOfTheJavaClientAreReplayed(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s to run the Java client", program)
		}
	}
	b := real(t)
	lib, err := filepath.Abs("../.pulsar/lib/java-client")
	require.NoError(t, err)
	out, err := exec.Command("mvn", "-q", "-B", "-f", "../test/retry/testdata/java/pom.xml",
		"org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies",
		"-DoutputDirectory="+lib).CombinedOutput()
	require.NoError(t, err, string(out))
	tp := b.topics(0)
	java := func(what string, n int) string {
		cmd := exec.Command("java", "-cp", filepath.Join(lib, "*"), "testdata/Letters.java", b.url, tp.origin, sub,
			what, fmt.Sprint(n))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	java("die", 5)
	d := b.open(tp.dlq)
	letters := peek(t, d)
	require.GreaterOrEqual(t, len(letters), 5) // the Java client may publish a letter twice
	for _, l := range letters {
		assert.Equal(t, tp.origin, l.Origin)
		assert.Equal(t, sub, l.Subscription)
		assert.NotEmpty(t, l.Schema)
	}
	report, err := d.Replay(bg, deadletter.ReplayOptions{})
	require.NoError(t, err)
	require.Equal(t, len(letters), report.Done, "%+v", report)
	got := java("read", len(letters))
	for i := range 5 {
		require.Contains(t, got, fmt.Sprintf("%d of Java key %d %d 1 true\n", i, i, 1000+i), "Java read something else")
	}
	require.Equal(t, len(letters), strings.Count(got, "\n"))
}

func peek(t testing.TB, d *deadletter.Topic) []deadletter.Letter {
	t.Helper()
	var all []deadletter.Letter
	for l, err := range d.Peek(bg, 0) {
		require.NoError(t, err)
		all = append(all, l)
	}
	return all
}
