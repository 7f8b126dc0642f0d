package suite

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

func TestFailedMessagesComeBackOnce(t *testing.T) {
	t.Parallel()
	for name, way := range testkit.Ways {
		t.Run(name, func(t *testing.T) { failedMessagesComeBackOnce(t, way.Option, way.Fail) })
	}
}

func failedMessagesComeBackOnce(t *testing.T, option redelivery.Option, fail func(*redelivery.Consumer, pulsar.Message)) {
	testkit.Each(t, testkit.SubscriptionTypes, func(t *testing.T, kind pulsar.SubscriptionType) {
		testkit.Each(t, map[string]bool{"batched": true, "single": false}, func(t *testing.T, batched bool) {
			for _, partitions := range []int{0, 2} {
				t.Run(fmt.Sprint(partitions), func(t *testing.T) {
					t.Parallel()
					b := testkit.NewBroker(t)
					topic := b.NewTopic(partitions)
					c := b.Subscribe(b.Options(topic, kind), option)
					b.Send(topic, 10, batched)
					failed := map[string]time.Time{}
					for range 10 {
						msg := testkit.Receive(t, c)
						failed[string(msg.Payload())] = time.Now()
						fail(c, msg)
					}
					require.Len(t, failed, 10)
					for range 10 {
						msg := testkit.Receive(t, c)
						at, ok := failed[string(msg.Payload())]
						require.True(t, ok, "%q came twice", msg.Payload())
						require.GreaterOrEqual(t, time.Since(at), 300*time.Millisecond)
						assert.EqualValues(t, 1, c.RedeliveryCount(msg))
						delete(failed, string(msg.Payload()))
						require.NoError(t, c.Ack(msg))
					}
					testkit.ReceiveNothing(t, c, 500*time.Millisecond)
					b.Settles(topic, partitions)
				})
			}
		})
	})
}

func TestBackoffGrows(t *testing.T) {
	t.Parallel()
	testkit.Each(t, map[string]pulsar.SubscriptionType{"Shared": pulsar.Shared, "Exclusive": pulsar.Exclusive},
		func(t *testing.T, kind pulsar.SubscriptionType) {
			testkit.Each(t, map[string]bool{"by message": false, "by id": true}, func(t *testing.T, byID bool) {
				t.Parallel()
				b := testkit.NewBroker(t)
				topic := b.NewTopic(0)
				policy := backoff.Exponential{Min: 100 * time.Millisecond, Max: time.Second, Multiplier: 2}
				c := b.Subscribe(b.Options(topic, kind), redelivery.WithNackRedeliveryBackoff(policy))
				b.Send(topic, 1, false)
				var due time.Time
				for n := range uint32(6) {
					msg := testkit.Receive(t, c)
					require.False(t, time.Now().Before(due), "early")
					require.Equal(t, n, c.RedeliveryCount(msg))
					if n == 5 {
						require.NoError(t, c.Ack(msg))
						break
					}
					due = time.Now().Add(policy.Next(n))
					if byID {
						c.NackID(msg.ID())
					} else {
						c.Nack(msg)
					}
				}
				b.Settles(topic, 0)
			})
		})
}

func TestPlainConsumerWrapped(t *testing.T) {
	t.Parallel()
	testkit.Each(t, map[string][]redelivery.Option{
		"from memory": nil, "from the broker": {redelivery.WithRedeliveryFrom(redelivery.FromBroker)},
	}, func(t *testing.T, options []redelivery.Option) {
		t.Parallel()
		b := testkit.NewBroker(t)
		topic := b.NewTopic(0)
		opts := b.Options(topic, pulsar.Shared)
		opts.NackRedeliveryDelay = 2 * time.Second
		inner, err := b.Client.Subscribe(opts)
		require.NoError(t, err)
		policy := backoff.Exponential{Min: time.Second, Max: 10 * time.Second, Multiplier: 2}
		var log logtest.Buffer
		c, err := redelivery.Wrap(inner, append(options, redelivery.WithNackRedeliveryBackoff(policy),
			redelivery.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))...)
		require.NoError(t, err)
		defer c.Close()
		b.Send(topic, 10, false)
		due := map[string]time.Time{}
		var worst time.Duration
		for range 10 * 3 {
			msg := testkit.Receive(t, c)
			now, at := time.Now(), due[string(msg.Payload())]
			require.False(t, now.Before(at), "early by %v", at.Sub(now))
			if !at.IsZero() {
				worst = max(worst, now.Sub(at))
			}
			n := c.RedeliveryCount(msg)
			if n == 2 {
				require.NoError(t, c.Ack(msg))
				continue
			}
			due[string(msg.Payload())] = now.Add(policy.Next(n))
			c.Nack(msg)
		}
		t.Logf("late by up to %v", worst)
		require.Less(t, worst, 2*time.Second*4/3+time.Second)
		require.Equal(t, 1, strings.Count(log.String(), "Wrap does not know the options"), log.String())
		b.Settles(topic, 0)
	})
}
