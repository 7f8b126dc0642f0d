package suite

import (
	"log/slog"
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
