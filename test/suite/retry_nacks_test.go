package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

func TestReconsumeErrors(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic(0)
	plain := b.subscribe(b.options(topic, pulsar.Shared))
	b.send(topic, 2, false)
	msg := receive(t, plain)
	require.ErrorIs(t, plain.ReconsumeLaterNext(bg, msg), redelivery.ErrNoRetryTopic)
	err := plain.DeadLetter(bg, msg, errors.New("bad"))
	require.ErrorIs(t, err, redelivery.ErrNoRetryTopic)
	require.ErrorContains(t, err, "no dead letter topic, want WithDeadLetterPolicy")
	plain.Close()

	c := b.subscribe(b.retrying(topic, 3), redelivery.WithReconsumeBackoff(backoff.Exponential{}))
	msg = receive(t, c)
	require.Error(t, c.ReconsumeLaterNext(bg, nil))
	require.ErrorIs(t, c.ReconsumeLaterLevel(bg, msg, 1), reconsume.ErrNoLevels)
	canceled, cancel := context.WithCancel(bg)
	cancel()
	require.ErrorIs(t, c.ReconsumeLaterNext(canceled, msg), context.Canceled)
	require.NoError(t, c.DeadLetter(bg, msg, errors.New("bad "+strings.Repeat("é", 2000))))
	dead := next(t, b.deadLetters(topic), 5*time.Second)
	require.Len(t, dead.Properties()["EXCEPTION_MESSAGE"], 1024)
	require.Equal(t, topic, dead.Properties()["ORIGIN_TOPIC"])
	require.Equal(t, "0", dead.Properties()["REDELIVERY_COUNT"])
	msg = receive(t, c)
	c.Close()
	require.ErrorIs(t, c.ReconsumeLaterNext(bg, msg), redelivery.ErrClosed)
	c.ReconsumeLater(msg, 0)
	require.EqualValues(t, 1, c.Stats().Failed)
}

func TestLongNacksGoThroughTheRetryTopic(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic(0)
	opts := b.retrying(topic, 4)
	opts.AckWithResponse = true
	policy := backoff.Exponential{Min: ms(300), Max: time.Minute, Multiplier: 4} // 0.3, 1.2, 4.8 s
	c := b.subscribe(opts, redelivery.WithNackRedeliveryBackoff(policy), redelivery.WithNackRetryTopic(time.Second))
	dead := b.deadLetters(topic)
	b.send(topic, 1, false)
	var due time.Time
	for n := range uint32(4) {
		msg := next(t, c, 10*time.Second)
		require.False(t, time.Now().Before(due), "early by %v", time.Until(due))
		require.Equal(t, n, c.RedeliveryCount(msg))
		want := topic
		if n > 1 {
			want = retryTopic(topic)
		}
		require.Equal(t, want, msg.Topic())
		if n == 3 {
			require.NoError(t, c.NackWithDelay(msg, 0))
			break
		}
		due = time.Now().Add(policy.Next(n))
		c.Nack(msg)
	}
	go func() { _, _ = c.Receive(t.Context()) }()
	require.Equal(t, "3", next(t, dead, 10*time.Second).Properties()["REDELIVERY_COUNT"])
	b.settles(topic, 0)
	b.settles(retryTopic(topic), 0)
	require.Zero(t, c.Stats().Failed)
}

func TestReconsumeWhileTheBrokerIsDown(t *testing.T) {
	t.Parallel()
	b := newInProcess(t, pulsar.ClientOptions{OperationTimeout: time.Second})
	topic := b.topic(0)
	opts := b.retrying(topic, 3)
	opts.AckWithResponse = true // or an acknowledgement may be lost with the connection
	c := b.subscribe(opts)
	b.send(topic, 2, false)
	first, second := receive(t, c), receive(t, c)
	require.NoError(t, c.ReconsumeLaterAfter(bg, first, time.Hour, nil)) // the producer is there
	b.inProcess.RefuseConnections(true)
	b.inProcess.DropConnections()
	for _, call := range []func(context.Context) error{
		func(ctx context.Context) error { return c.ReconsumeLaterNext(ctx, second) },
		func(ctx context.Context) error { return c.DeadLetter(ctx, second, errors.New("bad")) }, // there is no producer yet
	} {
		ctx, cancel := context.WithTimeout(bg, 500*time.Millisecond)
		begin := time.Now()
		require.Error(t, call(ctx))
		require.Less(t, time.Since(begin), 2*time.Second)
		cancel()
	}
	b.inProcess.RefuseConnections(false)
	require.Eventually(t, func() bool { return b.inProcess.Subscription(topic, sub).Unacked == 1 }, 10*time.Second, ms(50))
	require.Eventually(t, func() bool { return c.Ack(second) == nil }, 10*time.Second, ms(50), "a second is short on a busy machine")
}

// A process that is killed leaves its retries to the next one.
func TestRetriesOutliveTheProcess(t *testing.T) {
	const n, levels = 200, "3s 4s 5s 6s 7s 8s 9s 10s"
	if topic := os.Getenv("REDELIVERY_TEST_VICTIM"); topic != "" {
		b := newBroker(t)
		l, err := backoff.ParseDelayLevels(levels)
		require.NoError(t, err)
		opts := b.retrying(topic, 99)
		opts.AckWithResponse = true // an acknowledgement that waits to be grouped would be lost
		c := b.subscribe(opts, redelivery.WithReconsumeBackoff(l))
		for i := 0; i < n; {
			msg := receive(t, c)
			require.NoError(t, c.ReconsumeLaterLevel(bg, msg, 1+i%len(l)))
			if _, again := publishing.DelayTime(msg); !again {
				i++
			}
		}
		fmt.Println("all wait")
		time.Sleep(time.Hour)
	}
	t.Parallel()
	b := newBroker(t)
	topic := b.topic(0)
	b.send(topic, n, false)
	victim := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	victim.Env = append(os.Environ(), "REDELIVERY_TEST_VICTIM="+topic, "PULSAR_URL="+b.url, "PULSAR_ADMIN_URL="+b.admin)
	out, err := victim.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, victim.Start())
	var said strings.Builder
	for buf := make([]byte, 1000); !strings.Contains(said.String(), "all wait"); {
		k, err := out.Read(buf)
		said.Write(buf[:k])
		require.NoError(t, err, said.String())
	}
	require.NoError(t, victim.Process.Kill())
	_ = victim.Wait()
	c := b.subscribe(b.retrying(topic, 99))
	seen := map[string]bool{}
	for range n {
		msg := next(t, c, 20*time.Second)
		delay, ok := publishing.DelayTime(msg)
		require.True(t, ok)
		require.GreaterOrEqual(t, time.Since(msg.PublishTime()), delay, "early")
		require.False(t, seen[string(msg.Payload())], "twice")
		seen[string(msg.Payload())] = true
		require.NoError(t, c.Ack(msg))
	}
	nothing(t, c, ms(500))
}

// Nacks that are moved to the retry topic are limited by MaxDeliveries alone, and the reason of the last one is in the
// dead letter.
func TestMovedNacksAreNotReconsumes(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic(0)
	c := b.subscribe(b.options(topic, pulsar.Shared), redelivery.WithReconsumeBackoff(backoff.Fixed(ms(1))),
		redelivery.WithNackRedeliveryDelay(ms(20)), redelivery.WithNackRetryTopic(ms(10)),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 4, MaxReconsumes: 1, InitialSubscriptionName: "inspect"}))
	b.send(topic, 1, false)
	for i := range 4 {
		msg := receive(t, c)
		d, err := c.Delivery(msg)
		require.NoError(t, err)
		require.EqualValues(t, i, d.RedeliveryCount)
		require.Equal(t, i == 3, d.Last)
		require.NoError(t, c.NackWithReason(msg, fmt.Errorf("failure %d", i+1)))
	}
	require.Equal(t, "failure 4", b.deadLetter(deadLetterTopic(topic), "inspect").Properties()["EXCEPTION_MESSAGE"])
}
