package owners

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// At the next consumer of the subscription a failed message is not early, and its count continues. After its last
// delivery it becomes a dead letter.
func TestAttemptsOutliveTheConsumer(t *testing.T) {
	t.Parallel()
	for kind := range testkit.SubscriptionTypes {
		for _, batched := range []bool{false, true} {
			for _, chans := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, batched %t, by channel %t", kind, batched, chans), func(t *testing.T) {
					t.Parallel()
					b := testkit.NewBroker(t)
					topic := b.NewTopic(0)
					dead := b.SubscribeDeadLetters(topic)
					opts := b.Options(topic, testkit.SubscriptionTypes[kind])
					subscribe := func() *redelivery.Consumer {
						return b.Subscribe(opts, redelivery.WithAttemptLog(redelivery.AttemptLog{}),
							redelivery.WithNackRedeliveryDelay(2*time.Second),
							redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 3}))
					}
					c := subscribe()
					b.Send(topic, 4, batched)
					due := map[string]time.Time{}
					for count := range uint32(3) {
						for range 4 {
							ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
							msg, err := testkit.Take(ctx, c, chans)
							cancel()
							require.NoError(t, err)
							require.Equal(t, count, msg.RedeliveryCount(), "%s", msg.Payload())
							require.False(t, time.Now().Before(due[string(msg.Payload())]), "%s is early",
								msg.Payload())
							due[string(msg.Payload())] = time.Now().Add(2 * time.Second)
							require.NoError(t, c.NackWithReason(msg, errors.New("no coffee")))
						}
						if count < 2 {
							require.Eventually(t, func() bool { return c.AttemptLog().Stats().Lag == 0 }, 5*time.Second,
								5*time.Millisecond)
							c.Close()
							c = subscribe()
						}
					}
					for range 4 {
						msg := testkit.Next(t, dead, 15*time.Second)
						require.Equal(t, "no coffee", msg.Properties()["EXCEPTION_MESSAGE"])
					}
					require.Eventually(t, func() bool { return c.AttemptLog().Stats().Records == 0 }, 15*time.Second,
						20*time.Millisecond)
				})
			}
		}
	}
}

func TestAttemptsOutliveTheWrappedConsumer(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	b.Send(topic, 1, false)
	for count := range uint32(2) {
		inner, err := b.Client.Subscribe(b.Options(topic, pulsar.Failover))
		require.NoError(t, err)
		c, err := redelivery.Wrap(inner, redelivery.WithClient(b.Client),
			redelivery.WithAttemptLog(redelivery.AttemptLog{}),
			redelivery.WithNackRedeliveryDelay(time.Second))
		require.NoError(t, err)
		msg := testkit.Receive(t, c)
		require.Equal(t, count, msg.RedeliveryCount())
		c.Nack(msg)
		c.Close()
	}
}

// With some options of the consumer no log is possible.
func TestBadOptionsOfAttemptLogAreRefused(t *testing.T) {
	t.Parallel()
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
	opts := b.Options(b.NewTopic(0), pulsar.Shared)
	with := func(opts pulsar.ConsumerOptions, log redelivery.AttemptLog) error {
		c, err := redelivery.Subscribe(b.Client, opts, redelivery.WithAttemptLog(log))
		if err == nil {
			c.Close()
		}
		return err
	}
	nonDurable, pattern, retries := opts, opts, opts
	retries.RetryEnable = true
	nonDurable.SubscriptionMode = pulsar.NonDurable
	pattern.Topic, pattern.TopicsPattern = "", "persistent://public/default/.*"
	for want, err := range map[string]error{
		"OpenTimeout is -1ns":   with(opts, redelivery.AttemptLog{OpenTimeout: -1}),
		"Retention is -1ns":     with(opts, redelivery.AttemptLog{Retention: -1}),
		"NonDurable":            with(nonDurable, redelivery.AttemptLog{}),
		"the log of attempts":   with(pattern, redelivery.AttemptLog{}),
		"those of retries":      with(retries, redelivery.AttemptLog{Topic: opts.Topic + "-" + opts.SubscriptionName + "-RETRY"}),
		"and dead letters":      with(retries, redelivery.AttemptLog{Topic: opts.Topic + "-" + opts.SubscriptionName + "-DLQ"}),
		"want a persistent one": with(opts, redelivery.AttemptLog{Topic: "non-persistent://public/default/log"}),
	} {
		require.ErrorIs(t, err, redelivery.ErrInvalidOption, want)
		if want != "the log of attempts" {
			require.ErrorContains(t, err, want)
		}
	}
	_, err := redelivery.SubscribeWith(b.Client.Subscribe, opts, redelivery.WithAttemptLog(redelivery.AttemptLog{}))
	require.ErrorContains(t, err, "WithClient")
}

// pulsar-client-go logs to the application's log. An error at each start would alarm operators.
func TestStartWithAttemptLogLogsNoError(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	var log logtest.Buffer
	errors := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: b.URL, Logger: plog.NewLoggerWithSlog(errors),
		OperationTimeout: 10 * time.Second})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	for range 10 {
		opts := b.Options(b.NewTopic(0), pulsar.Shared)
		c, err := redelivery.Subscribe(client, opts, redelivery.WithAttemptLog(redelivery.AttemptLog{}),
			redelivery.WithLogger(errors),
			redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 3,
				InitialSubscriptionName: "inspect"}))
		require.NoError(t, err)
		t.Cleanup(c.Close) // later than here, since upstream would log an error
	}
	require.Empty(t, log.String())
}
