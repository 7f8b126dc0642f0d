package nack

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

func TestAckTimeoutBackoffFollowsPIP130(t *testing.T) { // the PIP's delays divided by 50
	t.Parallel()
	const n = 40
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	policy := backoff.Exponential{Min: 20 * time.Millisecond, Max: 1200 * time.Millisecond, Multiplier: 2}
	c := b.Subscribe(b.Options(topic, pulsar.Shared), redelivery.WithAckTimeout(200*time.Millisecond),
		redelivery.WithAckTimeoutRedeliveryBackoff(policy))
	b.Send(topic, n, false)
	due := map[string]time.Time{}
	var late []time.Duration
	for range n * 9 {
		msg := testkit.Receive(t, c)
		now, count := time.Now(), c.RedeliveryCount(msg)
		if at, ok := due[string(msg.Payload())]; ok {
			require.False(t, now.Before(at), "early by %v", at.Sub(now))
			late = append(late, now.Sub(at))
		}
		if count == 8 {
			require.NoError(t, c.Ack(msg))
		}
		due[string(msg.Payload())] = time.Now().Add(200*time.Millisecond + policy.Next(count))
		if count < 8 {
			require.NoError(t, c.InProgress(msg))
		}
	}
	b.Settles(topic, 0)
	slices.Sort(late)
	t.Logf("lateness of %d redeliveries: p50 %v, p99 %v, max %v", len(late), late[len(late)/2], late[len(late)*99/100],
		late[len(late)-1])
}

// A broker stops sending to a consumer with 50,000 unacknowledged messages.
func TestFiftyThousandMessagesTimeOut(t *testing.T) { // not parallel, so that it is fast enough
	testkit.TakesLong(t)
	b := testkit.NewBroker(t)
	n, others, timeout := 50_000, 2000, 20*time.Second
	if b.InProcess != nil {
		n, others, timeout = 5_000, 400, 10*time.Second // the first message must not time out before the last is taken
	}
	held, busy := b.NewTopic(0), b.NewTopic(0)
	opts := b.Options("", pulsar.Shared)
	opts.Topics = []string{held, busy}
	var log logtest.Buffer
	c := b.Subscribe(opts, redelivery.WithAckTimeout(timeout), testkit.LogTo(&log))
	b.Send(held, n, false)
	taken := map[string]time.Time{}
	for range n {
		msg := testkit.Receive(t, c)
		taken[string(msg.Payload())] = time.Now()
		require.NoError(t, c.InProgress(msg))
	}
	require.Len(t, taken, n)
	go func() {
		for range others / 100 {
			b.Send(busy, 100, false)
			time.Sleep(500 * time.Millisecond)
		}
	}()
	var stall time.Duration
	for range n + others {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		msg, err := c.Receive(ctx)
		cancel()
		require.NoError(t, err)
		if strings.HasSuffix(msg.Topic(), held[len("persistent://"):]) {
			at, ok := taken[string(msg.Payload())]
			require.True(t, ok, "%s came twice", msg.Payload())
			require.GreaterOrEqual(t, time.Since(at), timeout)
			require.EqualValues(t, 1, c.RedeliveryCount(msg))
			delete(taken, string(msg.Payload()))
		}
		begin := time.Now()
		require.NoError(t, c.Ack(msg))
		stall = max(stall, time.Since(begin))
	}
	require.Empty(t, taken)
	b.Settles(held, 0)
	t.Logf("the longest ack took %v; %+v", stall, c.Stats())
	require.Equal(t, n/50_000, strings.Count(log.String(), "the broker may have stopped sending"), log.String())
}
