package subscribe

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/config"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

func TestConfigRedeliversAsOptionsDo(t *testing.T) {
	file, err := config.Parse([]byte(`
policies:
  gentle: {type: exponential, min: 1s, max: 10s, multiplier: 2}
  ladder: {type: levels, levels: "1s 5s 10s"}
  java: {className: MultiplierRedeliveryBackoff, params: '{"minDelayMs": 1000, "maxDelayMs": 60000}'}
consumers:
  default:
  gentle: {nackRedeliveryBackoff: gentle}
  ladder: {nackRedeliveryBackoff: ladder, ackTimeout: 3s}
  delay: {nackRedeliveryDelay: 2s, ackTimeout: 10s, ackTimeoutRedeliveryBackoff: java}
`))
	require.NoError(t, err)
	for name, options := range map[string][]redelivery.Option{
		"default": nil,
		"gentle":  {redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: time.Second, Max: 10 * time.Second})},
		"ladder": {redelivery.WithNackRedeliveryBackoff(backoff.DelayLevels{time.Second, 5 * time.Second, 10 * time.Second}),
			redelivery.WithAckTimeout(3 * time.Second)},
		"delay": {redelivery.WithNackRedeliveryDelay(2 * time.Second), redelivery.WithAckTimeout(10 * time.Second),
			redelivery.WithAckTimeoutRedeliveryBackoff(backoff.Exponential{Min: time.Second, Max: time.Minute})},
	} {
		t.Run(name, func(t *testing.T) {
			fromFile, err := file.Options(name)
			require.NoError(t, err)
			want := redeliveries(t, options)
			require.Len(t, want, 10)
			assert.Equal(t, want, redeliveries(t, fromFile))
		})
	}
}

// redeliveries returns the delays after which the Consumer requests a message. The application alternately nacks the
// message and lets it time out.
func redeliveries(t *testing.T, options []redelivery.Option) (delays []time.Duration) {
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
		for n := range 10 {
			inner.Channel <- pulsar.ConsumerMessage{Consumer: inner,
				Message: testkit.Message{MessageID: pulsar.NewMessageID(1, 1, 0, 0), Count: uint32(n)}}
			msg := testkit.Receive(t, c)
			if start := time.Now(); n%2 == 0 {
				c.Nack(msg)
				delays = append(delays, untilAsked(inner, n+1, start))
			} else if delay := untilAsked(inner, n+1, start); delay < 2*time.Minute {
				delays = append(delays, delay)
			} else { // without an ack timeout the message must be nacked
				delays = append(delays, 0)
				c.Nack(msg)
				untilAsked(inner, n+1, time.Now())
			}
		}
	}, options...)
	return delays
}

// untilAsked waits for request n, for at most two minutes, and returns the time since start.
func untilAsked(inner *testkit.Fake, n int, start time.Time) time.Duration {
	for time.Since(start) < 2*time.Minute {
		synctest.Wait()
		if len(inner.Requests()) == n {
			break
		}
		time.Sleep(time.Second / 2)
	}
	return time.Since(start)
}

func TestRetriesAndDeadLettersGoToTheTopicsInTheConfiguration(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	file, err := config.Parse([]byte(`
policies: {ladder: {type: levels, levels: "10ms 20ms"}}
consumers:
  billing:
    reconsumeBackoff: ladder
    maxDeliveries: 2
    retryTopic: ` + topic + `-again
    deadLetterTopic: ` + topic + `-dead
`))
	require.NoError(t, err)
	c, err := file.Subscribe(b.Client, "billing", b.Options(topic, pulsar.Shared))
	require.NoError(t, err)
	defer c.Close()
	dead, err := b.Client.Subscribe(b.Options(topic+"-dead", pulsar.Exclusive))
	require.NoError(t, err)
	defer dead.Close()
	b.Send(topic, 1, false)
	for n, from := range []string{topic, topic + "-again", topic + "-again"} {
		msg := testkit.Next(t, c, waittest.Limit)
		assert.Contains(t, msg.Topic(), from)
		assert.Equal(t, []string{"", "10", "20"}[n], msg.Properties()["DELAY_TIME"])
		require.NoError(t, c.ReconsumeLaterNext(context.Background(), msg))
	}
	assert.Equal(t, "3", testkit.Next(t, dead, waittest.Limit).Properties()["RECONSUMETIMES"])
}
