package config

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// refusingClient is a client whose Subscribe records its options and returns an error.
type refusingClient struct {
	pulsar.Client
	opts []pulsar.ConsumerOptions
}

var errRefused = errors.New("refused")

func (r *refusingClient) TopicPartitions(topic string) ([]string, error) { return []string{topic}, nil }

func (r *refusingClient) Subscribe(opts pulsar.ConsumerOptions) (pulsar.Consumer, error) {
	r.opts = append(r.opts, opts)
	return nil, errRefused
}

var billing = pulsar.ConsumerOptions{Topic: "orders", SubscriptionName: "billing", Type: pulsar.Shared}

func TestSubscribePassesOnTheFilesTopicsAndRefusesContradictions(t *testing.T) {
	c, err := Load("testdata/redelivery.yaml")
	require.NoError(t, err)
	client := new(refusingClient)
	_, err = c.Subscribe(client, "billing", billing)
	require.ErrorIs(t, err, errRefused)
	assert.Equal(t, []string{"orders", "persistent://public/default/orders-retry"}, client.opts[0].Topics)

	twoPolicies := billing
	twoPolicies.NackRedeliveryDelay = time.Second
	_, err = c.Subscribe(client, "billing", twoPolicies)
	assert.ErrorIs(t, err, redelivery.ErrInvalidOption, "an option that contradicts the file was accepted")
	_, err = c.Subscribe(client, "biling", billing)
	assert.ErrorContains(t, err, `config: consumer is "biling"`)
	_, err = c.Subscribe(nil, "billing", billing)
	assert.ErrorContains(t, err, "client is nil")
	assert.Len(t, client.opts, 1)
}

func TestFileReplacesOnlyTheDeadLetterSettingsThatItHas(t *testing.T) {
	dlq := pulsar.DLQPolicy{MaxDeliveries: 2, RetryLetterTopic: "again", DeadLetterTopic: "before", InitialSubscriptionName: "keeper",
		ProducerOptions: pulsar.ProducerOptions{DisableBatching: true}}
	for in, want := range map[string]*redelivery.DeadLetterPolicy{
		"":                    nil,
		"reconsumeBackoff: p": nil,
		"maxDeliveries: 5":    {MaxDeliveries: 5, Topic: "persistent://public/default/before", RetryTopic: "persistent://public/default/again", InitialSubscriptionName: "keeper"},
		"maxRedeliverCount: 5": {MaxDeliveries: 6, MaxReconsumes: 5, Topic: "persistent://public/default/before", RetryTopic: "persistent://public/default/again",
			InitialSubscriptionName: "keeper"},
		"maxReconsumes: 5, reconsumeBackoff: p": {MaxDeliveries: 2, MaxReconsumes: 5, Topic: "persistent://public/default/before", RetryTopic: "persistent://public/default/again",
			InitialSubscriptionName: "keeper"},
		"maxDeliveries: 5, maxReconsumes: 6, reconsumeBackoff: p, deadLetterTopic: d, retryTopic: r, initialSubscriptionName: i, omitCause: true": {
			MaxDeliveries: 5, MaxReconsumes: 6, Topic: "d", RetryTopic: "r", InitialSubscriptionName: "i", OmitCause: true},
		"maxDeliveries: 5, discard: true": {MaxDeliveries: 5, RetryTopic: "persistent://public/default/again", Discard: true},
		"deadLetterTopic: d, reconsumeBackoff: p": {MaxDeliveries: 2, MaxReconsumes: 2, Topic: "d", RetryTopic: "persistent://public/default/again",
			InitialSubscriptionName: "keeper"},
	} {
		c, err := Parse([]byte("policies: {p: {type: fixed, delay: 1s}}\nconsumers: {c: {" + in + "}}"))
		require.NoError(t, err)
		given := dlq
		opts := billing
		opts.DLQ = &given
		got, options, err := c.ConsumerOptions("c", opts)
		require.NoError(t, err)
		assert.Equal(t, dlq, given, "the caller's DLQ was changed")
		if want == nil {
			assert.Equal(t, opts, got, "the program's settings were changed")
			assert.False(t, c.Consumers["c"].setsDeadLetters())
		} else {
			want.ProducerOptions = dlq.ProducerOptions
			assert.Nil(t, got.DLQ)
			assert.Equal(t, *want, c.Consumers["c"].deadLetters(opts.DLQ), in)
		}
		_, err = redelivery.Subscribe(new(refusingClient), got, options...)
		assert.ErrorIs(t, err, errRefused, in)
		got, _, err = c.ConsumerOptions("c", billing)
		require.NoError(t, err)
		assert.Equal(t, billing, got)
	}
	c, err := Parse([]byte("consumers: {c: {maxDeliveries: 5}}"))
	require.NoError(t, err)
	policy := c.Consumers["c"].deadLetters(&pulsar.DLQPolicy{MaxDeliveries: 2, DeadLetterTopicProducerName: "one"})
	assert.Equal(t, redelivery.DeadLetterPolicy{MaxDeliveries: 5, ProducerName: "one"}, policy)
}

func TestEachKeyOfAConsumerBecomesAnOption(t *testing.T) {
	for in, n := range map[string]int{
		"":                                                0,
		"nackRedeliveryBackoff: p":                        1,
		"nackRedeliveryDelay: 0":                          1,
		"ackTimeout: 1s":                                  1,
		"maxDeliveries: 2":                                1,
		"maxRedeliverCount: 2":                            1,
		"memoryLimit: 0":                                  1,
		"memoryLimit: 16MiB":                              1,
		"redeliveryFrom: auto":                            1,
		"redeliveryFrom: broker":                          1,
		"resolution: 1ms":                                 1,
		"resolution: 1m":                                  1,
		"withoutChecks: true":                             1,
		"withoutChecks: false":                            0,
		"reconsumeBackoff: p":                             1,
		"reconsumeBackoff: p, nackRetryTopic: 1m":         2,
		"reconsumeBackoff: p, retryTopic: r":              2,
		"reconsumeBackoff: p, retryLetterTopic: r":        2,
		"reconsumeBackoff: p, omitCause: true":            2,
		"reconsumeBackoff: p, initialSubscriptionName: i": 2,
		"maxDeliveries: 2, omitCause: true, deadLetterTopic: d": 1,
		"maxDeliveries: 2, discard: true":                       1,
		"maxDeliveries: 2, deadBeforeTTL: 1h":                   2,
		"ackTimeout: 1s, ackTimeoutRedeliveryBackoff: p":        2,
	} {
		c, err := Parse([]byte("policies: {p: {type: fixed, delay: 1s}}\nconsumers: {c: {" + in + "}}"))
		require.NoError(t, err, in)
		options, err := c.Options("c")
		require.NoError(t, err)
		assert.Len(t, options, n, in)
		_, err = redelivery.Subscribe(new(refusingClient), billing, options...)
		assert.ErrorIs(t, err, errRefused, in)
	}
}

func TestBytesMayHaveUnitsAndComeFromVariables(t *testing.T) {
	for in, want := range map[string]int64{"0": 0, "4096": 4096, "1KiB": 1 << 10, "16MiB": 16 << 20, `"2GiB"`: 2 << 30, "8589934591GiB": 8589934591 << 30,
		"9223372036854775807": 1<<63 - 1} {
		c, err := Parse([]byte("consumers: {c: {memoryLimit: " + in + "}}"))
		require.NoError(t, err, in)
		assert.Equal(t, want, *c.Consumers["c"].MemoryLimit, in)
	}
	t.Setenv("REDELIVERY_CONSUMERS_C_MEMORY_LIMIT", "1MiB")
	t.Setenv("REDELIVERY_CONSUMERS_C_REDELIVERY_FROM", "memory")
	t.Setenv("REDELIVERY_CONSUMERS_C_MAX_REDELIVER_COUNT", "4")
	c, err := Parse([]byte("consumers: {c: }"))
	require.NoError(t, err)
	assert.Equal(t, Consumer{MemoryLimit: ptr(int64(1 << 20)), RedeliveryFrom: redelivery.FromMemory, MaxDeliveries: 5, MaxReconsumes: 4},
		c.Consumers["c"])
}

// The Consumer also warns that the broker will delete the dead letters unread, since they have no initial subscription.
func TestConsumerWithOnlyTheFilesOptionsPublishesDeadLetters(t *testing.T) {
	broker, err := pulsartest.Start(pulsartest.WithExactDelays())
	require.NoError(t, err)
	defer broker.Close()
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: broker.URL(), Logger: logtest.Client(t)})
	require.NoError(t, err)
	defer client.Close()
	c, err := Parse([]byte("consumers: {billing: {maxRedeliverCount: 2, nackRedeliveryDelay: 20ms, deadLetterTopic: dead}}"))
	require.NoError(t, err)
	options, err := c.Options("billing")
	require.NoError(t, err)
	var log bytes.Buffer
	consumer, err := redelivery.Subscribe(client, billing, append(options, redelivery.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))...)
	require.NoError(t, err)
	defer consumer.Close()
	assert.Contains(t, log.String(), "dead letters without InitialSubscriptionName")
	dead, err := client.Subscribe(pulsar.ConsumerOptions{Topic: "dead", SubscriptionName: "inspect"})
	require.NoError(t, err)
	defer dead.Close()
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: billing.Topic})
	require.NoError(t, err)
	defer producer.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err = producer.Send(ctx, &pulsar.ProducerMessage{Payload: []byte("invoice")})
	require.NoError(t, err)
	for range 3 { // once, and two redeliveries
		msg, err := consumer.Receive(ctx)
		require.NoError(t, err)
		consumer.Nack(msg)
	}
	msg, err := dead.Receive(ctx)
	require.NoError(t, err)
	assert.Equal(t, "invoice", string(msg.Payload()))
}
