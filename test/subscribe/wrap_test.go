package subscribe

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

func TestWrapOfPlainConsumerRedelivers(t *testing.T) {
	t.Parallel()
	testkit.Each(t, map[string][]redelivery.Option{
		"from memory": nil, "from the broker": {redelivery.WithRedeliveryFrom(redelivery.FromBroker)},
	}, func(t *testing.T, options []redelivery.Option) {
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
		require.Equal(t, 1, strings.Count(log.String(), "Wrap does not know the options"), log.String())
		b.Settles(topic, 0)
	})
}

// traced is a wrapper of a consumer, as tracing libraries have it.
type traced struct{ pulsar.Consumer }

func TestSubscribeWithRedeliversAndPublishes(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	for name, wrap := range map[string]func(pulsar.Consumer) pulsar.Consumer{
		"plain":   func(c pulsar.Consumer) pulsar.Consumer { return c },
		"wrapped": func(c pulsar.Consumer) pulsar.Consumer { return traced{c} },
	} {
		t.Run(name, func(t *testing.T) {
			topic := b.NewTopic(0)
			opts := b.Options(topic, pulsar.Shared)
			opts.RetryEnable = true
			opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 2, InitialSubscriptionName: "inspect"}
			calls := 0
			c, err := redelivery.SubscribeWith(func(opts pulsar.ConsumerOptions) (pulsar.Consumer, error) {
				calls++
				inner, err := b.Client.Subscribe(opts)
				return wrap(inner), err
			}, opts, redelivery.WithLogger(logtest.Logger(t)), redelivery.WithClient(b.Client), redelivery.WithNackRedeliveryDelay(50*time.Millisecond))
			require.NoError(t, err)
			defer c.Close()
			require.Equal(t, 1, calls)
			b.Send(topic, 2, false)
			nacked, retried := testkit.Receive(t, c), testkit.Receive(t, c)
			c.Nack(nacked)
			require.NoError(t, c.ReconsumeLaterAfter(context.Background(), retried, 0, nil))
			first, second := testkit.Receive(t, c), testkit.Receive(t, c)
			if first.Topic() != nacked.Topic() {
				first, second = second, first
			}
			require.Equal(t, nacked.Payload(), first.Payload())
			require.EqualValues(t, 1, c.RedeliveryCount(first))
			require.Equal(t, retried.Payload(), second.Payload())
			require.NoError(t, c.Ack(second))
			require.NoError(t, c.NackWithReason(first, errors.New("why")))
			require.Equal(t, "why", b.ReceiveDeadLetter(testkit.DeadLetterTopic(topic),
				"inspect").Properties()["EXCEPTION_MESSAGE"])
		})
	}
}

func TestSubscribeWithRefusesBadConsumers(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	opts := b.Options(b.NewTopic(0), pulsar.Shared)
	_, err := redelivery.SubscribeWith(nil, opts)
	require.ErrorContains(t, err, "subscribe is nil")
	for want, subscribe := range map[string]func(pulsar.ConsumerOptions) (pulsar.Consumer, error){
		"is nil":                   func(pulsar.ConsumerOptions) (pulsar.Consumer, error) { return nil, nil },
		"another *pulsar.consumer": func(pulsar.ConsumerOptions) (pulsar.Consumer, error) { return b.Client.Subscribe(opts) },
		"a *redelivery.Consumer": func(pulsar.ConsumerOptions) (pulsar.Consumer, error) {
			return redelivery.Subscribe(b.Client, opts)
		},
	} {
		_, err := redelivery.SubscribeWith(subscribe, opts)
		require.ErrorIs(t, err, redelivery.ErrInvalidOption)
		require.ErrorContains(t, err, want)
	}
	refused := errors.New("refused")
	_, err = redelivery.SubscribeWith(func(pulsar.ConsumerOptions) (pulsar.Consumer, error) { return nil, refused },
		opts)
	require.Equal(t, refused, err, "the error was changed")
	require.PanicsWithValue(t, "of the caller's", func() {
		_, _ = redelivery.SubscribeWith(func(pulsar.ConsumerOptions) (pulsar.Consumer, error) { panic("of the caller's") }, opts)
	})
	c, err := redelivery.SubscribeWith(b.Client.Subscribe, opts)
	require.NoError(t, err)
	c.Close()
}

// Such a Consumer also publishes dead letters. Wrap asks the broker which topics the consumer reads.
func TestWrapWithClientPublishesRetries(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	for name, partitions := range map[string]int{"topic": 0, "partitioned": 2} {
		t.Run(name, func(t *testing.T) {
			topic := b.NewTopic(partitions)
			opts := b.Options(topic, pulsar.Shared)
			opts.RetryEnable = true // so that upstream subscribes to the retry topic
			opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 1000}
			inner, err := b.Client.Subscribe(opts)
			require.NoError(t, err)
			c, err := redelivery.Wrap(inner, redelivery.WithLogger(logtest.Logger(t)), redelivery.WithClient(b.Client),
				redelivery.WithNackRedeliveryDelay(50*time.Millisecond),
				redelivery.WithReconsumeBackoff(backoff.Fixed(50*time.Millisecond)),
				redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 2,
					InitialSubscriptionName: "inspect", OmitCause: true}))
			require.NoError(t, err)
			defer c.Close()
			b.Send(topic, 1, false)
			msg := testkit.Receive(t, c)
			require.NoError(t, c.ReconsumeLaterNext(context.Background(), msg))
			msg = testkit.Receive(t, c)
			require.Equal(t, topic+"-"+testkit.Subscription+"-RETRY", msg.Topic())
			c.Nack(msg)
			require.NoError(t, c.NackWithReason(testkit.Receive(t, c), errors.New("a secret")))
			letter := b.ReceiveDeadLetter(testkit.DeadLetterTopic(topic), "inspect")
			require.Empty(t, letter.Properties()["EXCEPTION_MESSAGE"])
		})
	}
	t.Run("not subscribed to the retry topic", func(t *testing.T) {
		inner, err := b.Client.Subscribe(b.Options(b.NewTopic(0), pulsar.Shared))
		require.NoError(t, err)
		defer inner.Close()
		_, err = redelivery.Wrap(inner, redelivery.WithLogger(logtest.Logger(t)), redelivery.WithClient(b.Client),
			redelivery.WithReconsumeBackoff(backoff.Fixed(time.Second)))
		require.ErrorIs(t, err, redelivery.ErrInvalidOption)
		require.ErrorContains(t, err, "not subscribed to its retry topic")
	})
	t.Run("another retry topic", func(t *testing.T) {
		opts := b.Options(b.NewTopic(0), pulsar.Shared)
		opts.RetryEnable = true
		inner, err := b.Client.Subscribe(opts)
		require.NoError(t, err)
		defer inner.Close()
		_, err = redelivery.Wrap(inner, redelivery.WithLogger(logtest.Logger(t)), redelivery.WithClient(b.Client),
			redelivery.WithReconsumeBackoff(backoff.Fixed(time.Second)),
			redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{RetryTopic: "nobody-reads-it"}))
		require.ErrorIs(t, err, redelivery.ErrInvalidOption)
	})
	t.Run("a client alone", func(t *testing.T) {
		opts := b.Options(b.NewTopic(0), pulsar.Shared)
		opts.RetryEnable = true
		inner, err := b.Client.Subscribe(opts)
		require.NoError(t, err)
		c, err := redelivery.Wrap(inner, redelivery.WithLogger(logtest.Logger(t)), redelivery.WithClient(b.Client),
			redelivery.WithNackRetryTopic(time.Hour))
		require.NoError(t, err)
		defer c.Close()
		b.Send(opts.Topic, 1, false)
		require.NoError(t, c.ReconsumeLaterAfter(context.Background(), testkit.Receive(t, c), 0, nil))
		require.NoError(t, c.DeadLetter(context.Background(), testkit.Receive(t, c), errors.New("no")))
	})
	t.Run("several topics", func(t *testing.T) {
		opts := b.Options("", pulsar.Shared)
		opts.Topics = []string{b.NewTopic(0), b.NewTopic(0)}
		inner, err := b.Client.Subscribe(opts)
		require.NoError(t, err)
		policy := redelivery.DeadLetterPolicy{MaxDeliveries: 1}
		_, err = redelivery.Wrap(inner, redelivery.WithLogger(logtest.Logger(t)), redelivery.WithClient(b.Client),
			redelivery.WithDeadLetterPolicy(policy))
		require.ErrorIs(t, err, redelivery.ErrInvalidOption)
		policy.Topic, policy.InitialSubscriptionName = b.NewTopic(0), "inspect"
		c, err := redelivery.Wrap(inner, redelivery.WithLogger(logtest.Logger(t)), redelivery.WithClient(b.Client),
			redelivery.WithDeadLetterPolicy(policy))
		require.NoError(t, err)
		defer c.Close()
		b.Send(opts.Topics[1], 1, false)
		c.Nack(testkit.Receive(t, c))
		require.NotNil(t, b.ReceiveDeadLetter(policy.Topic, "inspect"))
	})
}

// The application received the messages before Wrap. The Consumer can acknowledge and nack them. Methods that need more
// than an id return an error that says why.
func TestWrapOfRunningConsumerSettlesEarlierMessages(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	opts := b.Options(topic, pulsar.Shared)
	opts.NackRedeliveryDelay = 300 * time.Millisecond
	inner, err := b.Client.Subscribe(opts)
	require.NoError(t, err)
	b.Send(topic, 5, false)
	var had []pulsar.Message
	for range 4 {
		msg, err := inner.Receive(waittest.Context(t))
		require.NoError(t, err)
		had = append(had, msg)
	}
	inner.Nack(had[0])
	c, err := redelivery.Wrap(inner, redelivery.WithLogger(logtest.Logger(t)), redelivery.WithClient(b.Client),
		redelivery.WithNackRedeliveryDelay(0), redelivery.WithAckTimeout(100*time.Millisecond),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 5,
			InitialSubscriptionName: "inspect"}))
	require.NoError(t, err)
	defer c.Close()
	fresh := testkit.Receive(t, c)
	require.Equal(t, "4", string(fresh.Payload()))
	require.NoError(t, c.Ack(fresh))
	c.Nack(had[1])
	require.NoError(t, c.Ack(had[2]))
	for _, err := range []error{c.InProgress(had[3]), c.DeadLetter(context.Background(), had[3], errors.New("no"))} {
		require.ErrorIs(t, err, redelivery.ErrNotInFlight)
		require.ErrorContains(t, err, "not delivered by this Consumer")
	}
	for range 2 { // had[0] and had[1] come again after the inner consumer's delay
		msg := testkit.Receive(t, c)
		require.Contains(t, []string{"0", "1"}, string(msg.Payload()))
		require.NoError(t, c.Ack(msg))
	}
	require.NoError(t, c.Ack(had[3]))
	testkit.ReceiveNothing(t, c, 500*time.Millisecond)
}

// If no other consumer can get the messages of a lost connection, the buffer has a sixteenth of the receiver queue,
// from 10 to 64 messages. Otherwise it has 5 or 10.
func TestBufferOfInnerConsumerFitsItsQueue(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	single, partitioned := b.NewTopic(0), b.NewTopic(2)
	for _, c := range []struct {
		opts pulsar.ConsumerOptions
		want int
	}{
		{pulsar.ConsumerOptions{Topic: single}, 62},
		{pulsar.ConsumerOptions{Topic: single, ReceiverQueueSize: 5000}, 64},
		{pulsar.ConsumerOptions{Topic: single, ReceiverQueueSize: 1}, 10},
		{pulsar.ConsumerOptions{Topic: partitioned}, 62},
		{pulsar.ConsumerOptions{Topic: single, Type: pulsar.Shared}, 5},
		{pulsar.ConsumerOptions{Topic: single, Type: pulsar.Shared, RetryEnable: true}, 5},
		{pulsar.ConsumerOptions{Topic: single, Type: pulsar.KeyShared, ReceiverQueueSize: 1}, 10},
		{pulsar.ConsumerOptions{TopicsPattern: single, Type: pulsar.Shared}, 5},
	} {
		c.opts.SubscriptionName = "sub"
		refused := errors.New("refused")
		_, err := redelivery.SubscribeWith(func(opts pulsar.ConsumerOptions) (pulsar.Consumer, error) {
			require.Equal(t, c.want, cap(opts.MessageChannel), "%+v", c.opts)
			return nil, refused
		}, c.opts, redelivery.WithClient(b.Client), redelivery.WithRedeliveryResolution(10*time.Millisecond))
		require.ErrorIs(t, err, refused)
	}
}

func TestWrapWarnsOnceAndOnlyWhenTheMemoryLimitIsExceeded(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int64]int{redelivery.DefaultMemoryLimit: 0, 0: 1} {
		b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
		topic := b.NewTopic(0)
		inner, err := b.Client.Subscribe(b.Options(topic, pulsar.Shared))
		require.NoError(t, err)
		var log logtest.Buffer
		c, err := redelivery.Wrap(inner, redelivery.WithMemoryLimit(limit),
			redelivery.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		require.NoError(t, err)
		b.Send(topic, 3, false)
		for range 3 {
			c.Nack(testkit.Receive(t, c))
		}
		c.Close()
		require.Equal(t, 1, strings.Count(log.String(), `level=INFO msg="redelivery: Wrap does not know the options`))
		require.Equal(t, want, strings.Count(log.String(), "level=WARN"), log.String())
		require.Equal(t, want, strings.Count(log.String(), "does not fit the memory limit, and comes late"))
	}
}
