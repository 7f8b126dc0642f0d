package owners

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/internal/race"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

func attemptLog(topic string) string { return topic + "-" + testkit.Subscription + "-ATTEMPTS" }

// logged returns options of a consumer with a log, and a counter of the failures of the log that the observer sees.
func logged(log redelivery.AttemptLog) ([]redelivery.Option, *atomic.Int64) {
	var failures atomic.Int64
	return []redelivery.Option{redelivery.WithAttemptLog(log),
		redelivery.WithNackRedeliveryDelay(300 * time.Millisecond),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 4}),
		redelivery.WithObserver(redelivery.Observer{Failed: func(f redelivery.Failed) {
			if f.Operation == "attempt log" {
				failures.Add(1)
			}
		}})}, &failures
}

// failAll nacks n messages until they are dead letters. When each has failed twice, it calls between.
func failAll(t *testing.T, b *testkit.Broker, topic string, c *redelivery.Consumer, dead pulsar.Consumer, n int, between func()) {
	t.Helper()
	counts := map[string]uint32{}
	for handed := 0; handed < 4*n; handed++ {
		msg := testkit.Receive(t, c)
		id := string(msg.Payload())
		require.Equal(t, counts[id], msg.RedeliveryCount(), id)
		counts[id]++
		require.NoError(t, c.NackWithReason(msg, errors.New("no coffee")))
		if handed == 2*n-1 {
			between()
		}
	}
	for range n {
		testkit.Next(t, dead, 15*time.Second)
	}
}

func TestUnloadedOrDeletedAttemptLogIsRestored(t *testing.T) {
	if race.Enabled {
		t.Skip("data race in pulsar-client-go: a reconnecting producer replaces its encryptor while it sends")
	}
	t.Parallel()
	for _, fault := range []string{"unloaded", "deleted"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			dead := b.SubscribeDeadLetters(topic)
			options, _ := logged(redelivery.AttemptLog{})
			c := b.Subscribe(b.Options(topic, pulsar.Shared),
				append(options, redelivery.WithNackRedeliveryDelay(time.Hour))...)
			b.Send(topic, 5, false)
			fail := func(n int) {
				for range n {
					require.NoError(t, c.NackWithReason(testkit.Receive(t, c), errors.New("no coffee")))
				}
			}
			fail(3)
			require.Eventually(t, func() bool { return c.AttemptLog().Stats().Lag == 0 }, 5*time.Second,
				5*time.Millisecond)
			if fault == "unloaded" {
				b.Unload(attemptLog(topic))
			} else {
				b.Admin("DELETE", attemptLog(topic), "?force=true", nil, nil)
			}
			fail(2)
			opts := b.Options(topic, pulsar.Shared)
			require.Eventually(t, func() bool { // a new consumer reads the log
				options, _ := logged(redelivery.AttemptLog{})
				other, err := redelivery.Subscribe(b.Client, opts,
					append(options, redelivery.WithLogger(logtest.Logger(t)))...)
				if err != nil {
					return false
				}
				defer other.Close()
				return other.AttemptLog().Stats().Records == 5
			}, 40*time.Second, 500*time.Millisecond)
			_ = dead
		})
	}
}

// The log cannot be written. If it is optional, the Consumer works without it: no message is lost or stuck, and the
// failure is reported.
func TestRefusedAttemptLogFailsSubscribeUnlessOptional(t *testing.T) {
	t.Parallel()
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{OperationTimeout: 2 * time.Second})
	topic := b.NewTopic(0)
	dead := b.SubscribeDeadLetters(topic)
	refuse := func(c pulsartest.Command) pulsartest.Verdict {
		if c.Type == "PRODUCER" && strings.HasSuffix(c.Topic, "-ATTEMPTS") {
			return pulsartest.Fail("AuthorizationError", "not allowed")
		}
		return pulsartest.Pass
	}
	b.InProcess.SetHook(refuse)
	options, _ := logged(redelivery.AttemptLog{OpenTimeout: 4 * time.Second})
	_, err := redelivery.Subscribe(b.Client, b.Options(topic, pulsar.Shared), options...)
	require.ErrorContains(t, err, "WithAttemptLog")
	require.ErrorContains(t, err, "AuthorizationError")
	options, failures := logged(redelivery.AttemptLog{OpenTimeout: 100 * time.Millisecond, Optional: true})
	c := b.Subscribe(b.Options(topic, pulsar.Shared), options...)
	b.Send(topic, 3, false)
	failAll(t, b, topic, c, dead, 3, func() {})
	require.Eventually(t, func() bool { return failures.Load() > 0 }, 15*time.Second, 10*time.Millisecond)
	b.InProcess.SetHook(nil)
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	require.NoError(t, c.AttemptLog().Ready(ctx), "the log did not come back")
}

// The log's topic is slow, or refuses records for a while.
func TestSlowAttemptLogDelaysNothing(t *testing.T) {
	t.Parallel()
	for name, verdict := range map[string]pulsartest.Verdict{"slow": pulsartest.Pass.After(250 * time.Millisecond),
		"quota": pulsartest.Fail("ProducerBlockedQuotaExceededException", "full")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
			topic := b.NewTopic(0)
			dead := b.SubscribeDeadLetters(topic)
			options, _ := logged(redelivery.AttemptLog{})
			other := newOther(t, b)
			c := b.Subscribe(b.Options(topic, pulsar.Shared), append(options, redelivery.WithClient(other))...)
			b.InProcess.SetHook(func(c pulsartest.Command) pulsartest.Verdict {
				if (c.Type == "SEND" || name == "quota" && c.Type == "PRODUCER") && strings.HasSuffix(c.Topic, "-ATTEMPTS") {
					return verdict
				}
				return pulsartest.Pass
			})
			b.Send(topic, 3, false)
			failAll(t, b, topic, c, dead, 3, func() {})
			b.InProcess.SetHook(nil)
			require.Eventually(t, func() bool { s := c.AttemptLog().Stats(); return s.Lag == 0 && s.Records == 0 },
				40*time.Second, 20*time.Millisecond,
				"the log lags, or has records of settled messages")
		})
	}
}

// newOther returns a client for the log, so that the log's slow commands do not delay the test's other commands. The
// Consumer also publishes dead letters with this client. Since they may wait, its OperationTimeout is long.
func newOther(t *testing.T, b *testkit.Broker) pulsar.Client {
	c, err := pulsar.NewClient(pulsar.ClientOptions{URL: b.URL, Logger: logtest.Client(t),
		OperationTimeout: 12 * time.Second})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}
