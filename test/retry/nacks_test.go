package retry

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
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/reconsume"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

func TestReconsumeErrorsAreReturned(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	plain := b.Subscribe(b.Options(topic, pulsar.Shared))
	b.Send(topic, 2, false)
	msg := testkit.Receive(t, plain)
	require.ErrorIs(t, plain.ReconsumeLaterNext(context.Background(), msg), redelivery.ErrNoRetryTopic)
	err := plain.DeadLetter(context.Background(), msg, errors.New("bad"))
	require.ErrorIs(t, err, redelivery.ErrNoRetryTopic)
	require.ErrorContains(t, err, "no dead letter topic, want WithDeadLetterPolicy")
	plain.Close()

	c := b.Subscribe(b.RetryOptions(topic, 3), redelivery.WithReconsumeBackoff(backoff.Exponential{}))
	msg = testkit.Receive(t, c)
	require.Error(t, c.ReconsumeLaterNext(context.Background(), nil))
	require.ErrorIs(t, c.ReconsumeLaterLevel(context.Background(), msg, 1), reconsume.ErrNoLevels)
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, c.ReconsumeLaterNext(canceled, msg), context.Canceled)
	require.NoError(t, c.DeadLetter(context.Background(), msg, errors.New("bad "+strings.Repeat("é", 2000))))
	dead := testkit.Next(t, b.SubscribeDeadLetters(topic), waittest.Limit)
	require.Len(t, dead.Properties()["EXCEPTION_MESSAGE"], 1024)
	require.Equal(t, topic, dead.Properties()["ORIGIN_TOPIC"])
	require.Equal(t, "0", dead.Properties()["REDELIVERY_COUNT"])
	msg = testkit.Receive(t, c)
	c.Close()
	require.ErrorIs(t, c.ReconsumeLaterNext(context.Background(), msg), redelivery.ErrClosed)
	c.ReconsumeLater(msg, 0)
	require.EqualValues(t, 1, c.Stats().Failed)
}

func TestLongNacksGoThroughTheRetryTopic(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	opts := b.RetryOptions(topic, 4)
	opts.AckWithResponse = true
	policy := backoff.Exponential{Min: 300 * time.Millisecond, Max: time.Minute, Multiplier: 4} // 0.3, 1.2, 4.8 s
	c := b.Subscribe(opts, redelivery.WithNackRedeliveryBackoff(policy), redelivery.WithNackRetryTopic(time.Second))
	dead := b.SubscribeDeadLetters(topic)
	b.Send(topic, 1, false)
	var due time.Time
	for n := range uint32(4) {
		msg := testkit.Next(t, c, 10*time.Second)
		require.False(t, time.Now().Before(due), "early by %v", time.Until(due))
		require.Equal(t, n, c.RedeliveryCount(msg))
		want := topic
		if n > 1 {
			want = testkit.RetryTopic(topic)
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
	require.Equal(t, "3", testkit.Next(t, dead, 10*time.Second).Properties()["REDELIVERY_COUNT"])
	b.Settles(topic, 0)
	b.Settles(testkit.RetryTopic(topic), 0)
	require.Zero(t, c.Stats().Failed)
}

func TestReconsumeWhileBrokerIsDownFails(t *testing.T) {
	t.Parallel()
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{OperationTimeout: time.Second})
	topic := b.NewTopic(0)
	opts := b.RetryOptions(topic, 3)
	opts.AckWithResponse = true // otherwise the lost connection may swallow an acknowledgement
	c := b.Subscribe(opts)
	b.Send(topic, 2, false)
	first, second := testkit.Receive(t, c), testkit.Receive(t, c)
	require.NoError(t, c.ReconsumeLaterAfter(context.Background(), first, time.Hour, nil)) // creates the producer
	b.InProcess.RefuseConnections(true)
	b.InProcess.DropConnections()
	for _, call := range []func(context.Context) error{
		func(ctx context.Context) error { return c.ReconsumeLaterNext(ctx, second) },
		// the producer of dead letters does not exist yet
		func(ctx context.Context) error { return c.DeadLetter(ctx, second, errors.New("bad")) },
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		begin := time.Now()
		require.Error(t, call(ctx))
		require.Less(t, time.Since(begin), 2*time.Second)
		cancel()
	}
	b.InProcess.RefuseConnections(false)
	require.Eventually(t, func() bool { return b.InProcess.Subscription(topic, testkit.Subscription).Unacked == 1 },
		10*time.Second, 50*time.Millisecond)
	require.Eventually(t, func() bool { return c.Ack(second) == nil }, 10*time.Second, 50*time.Millisecond,
		"the application still has the message")
}

// The first process is killed, and the next process gets its retries.
func TestRetriesOutliveTheProcess(t *testing.T) {
	const n, levels = 200, "3s 4s 5s 6s"
	if topic := os.Getenv("REDELIVERY_TEST_VICTIM"); topic != "" {
		b := testkit.NewBroker(t)
		l, err := backoff.ParseDelayLevels(levels)
		require.NoError(t, err)
		opts := b.RetryOptions(topic, 99)
		opts.AckWithResponse = true // the kill would lose grouped acknowledgements
		c := b.Subscribe(opts, redelivery.WithReconsumeBackoff(l))
		for i := 0; i < n; {
			msg := testkit.Receive(t, c)
			require.NoError(t, c.ReconsumeLaterLevel(context.Background(), msg, 1+i%len(l)))
			if _, again := publishing.DelayTime(msg); !again {
				i++
			}
		}
		fmt.Println("all wait")
		time.Sleep(time.Hour)
	}
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	b.Send(topic, n, false)
	victim := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	victim.Env = append(os.Environ(), "REDELIVERY_TEST_VICTIM="+topic, "PULSAR_URL="+b.URL,
		"PULSAR_ADMIN_URL="+b.AdminURL)
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
	c := b.Subscribe(b.RetryOptions(topic, 99))
	seen := map[string]bool{}
	for range n {
		msg := testkit.Next(t, c, 20*time.Second)
		delay, ok := publishing.DelayTime(msg)
		require.True(t, ok)
		require.GreaterOrEqual(t, time.Since(msg.PublishTime()), delay, "early")
		require.False(t, seen[string(msg.Payload())], "twice")
		seen[string(msg.Payload())] = true
		require.NoError(t, c.Ack(msg))
	}
	testkit.ReceiveNothing(t, c, 500*time.Millisecond)
}

// Only MaxDeliveries limits the nacks that move a message to the retry topic. The dead letter has the reason of the
// last nack.
func TestMovedNacksAreNotReconsumes(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	c := b.Subscribe(b.Options(topic, pulsar.Shared), redelivery.WithReconsumeBackoff(backoff.Fixed(time.Millisecond)),
		redelivery.WithNackRedeliveryDelay(20*time.Millisecond), redelivery.WithNackRetryTopic(10*time.Millisecond),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 4, MaxReconsumes: 1,
			InitialSubscriptionName: "inspect"}))
	b.Send(topic, 1, false)
	for i := range 4 {
		msg := testkit.Receive(t, c)
		d, err := c.Delivery(msg)
		require.NoError(t, err)
		require.EqualValues(t, i, d.RedeliveryCount)
		require.Equal(t, i == 3, d.Last)
		require.NoError(t, c.NackWithReason(msg, fmt.Errorf("failure %d", i+1)))
	}
	require.Equal(t, "failure 4", b.ReceiveDeadLetter(testkit.DeadLetterTopic(topic),
		"inspect").Properties()["EXCEPTION_MESSAGE"])
}

// The main topic then has no unacknowledged message.
func TestLongSnoozeMovesToTheRetryTopicUncounted(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	c := b.Subscribe(b.Options(topic, pulsar.Shared), redelivery.WithReconsumeBackoff(backoff.Fixed(0)),
		redelivery.WithNackRetryTopic(time.Second),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 2}))
	dead := b.SubscribeDeadLetters(topic)
	b.Send(topic, 1, false)
	begin := time.Now()
	for n := range 3 {
		msg := testkit.Receive(t, c)
		require.Equal(t, uint32(0), c.RedeliveryCount(msg), "snooze %d", n)
		require.NoError(t, c.Snooze(msg, 1500*time.Millisecond))
		b.Settles(topic, 0)
	}
	msg := testkit.Receive(t, c)
	require.GreaterOrEqual(t, time.Since(begin), 4500*time.Millisecond)
	require.Equal(t, "3", msg.Properties()["RECONSUMETIMES"])
	require.Equal(t, "0", msg.Properties()["ATTEMPT_COUNT"])
	require.NoError(t, c.NackWithDelay(msg, 0))
	msg = testkit.Receive(t, c)
	require.Equal(t, uint32(1), c.RedeliveryCount(msg))
	c.Nack(msg)
	testkit.Next(t, dead, 10*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := c.Receive(ctx)
	require.Error(t, err)
}
