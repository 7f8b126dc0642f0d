package subscribe

import (
	"bytes"
	"cmp"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/reconsume"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

func TestInvalidOptionsAreRefused(t *testing.T) {
	policy := backoff.Exponential{}
	type opts = pulsar.ConsumerOptions
	const forgotten = "want 1ms or more (10ns: is the unit missing?)"
	for _, c := range []struct {
		opts    opts
		options []redelivery.Option
		want    []string
	}{
		{opts{}, []redelivery.Option{redelivery.WithNackRedeliveryBackoff(nil)},
			[]string{"WithNackRedeliveryBackoff", "policy is nil"}},
		{opts{}, []redelivery.Option{redelivery.WithNackRedeliveryBackoff(backoff.Func(nil))}, []string{"Func is nil"}},
		{opts{}, []redelivery.Option{redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: 2 * time.Millisecond, Max: time.Millisecond})},
			[]string{"WithNackRedeliveryBackoff", "Exponential.Max is 1ms"}},
		{opts{}, []redelivery.Option{redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Multiplier: math.NaN()})},
			[]string{"Multiplier is NaN"}},
		{opts{}, []redelivery.Option{redelivery.WithNackRedeliveryDelay(-time.Second)},
			[]string{"WithNackRedeliveryDelay is -1s", "0 or more"}},
		{opts{NackRedeliveryDelay: 10}, nil, []string{"ConsumerOptions.NackRedeliveryDelay is 10ns", forgotten}},
		{opts{}, []redelivery.Option{redelivery.WithNackRedeliveryDelay(10)}, []string{"WithNackRedeliveryDelay is 10ns", forgotten}},
		{opts{}, []redelivery.Option{redelivery.WithNackRedeliveryBackoff(backoff.WithJitter(backoff.Fixed(10), 0.1))},
			[]string{"WithNackRedeliveryBackoff", "Fixed delay is 10ns", forgotten}},
		{opts{}, []redelivery.Option{redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: 10})}, []string{"Min is 10ns", forgotten}},
		{opts{}, []redelivery.Option{redelivery.WithReconsumeBackoff(backoff.DelayLevels{0, 10})}, []string{"delay level 2 is 10ns", forgotten}},
		{opts{}, []redelivery.Option{redelivery.WithAckTimeout(10)}, []string{"WithAckTimeout is 10ns", forgotten}},
		{opts{}, []redelivery.Option{redelivery.WithNackRetryTopic(10)}, []string{"WithNackRetryTopic is 10ns", forgotten}},
		{opts{}, []redelivery.Option{redelivery.WithAttemptLog(redelivery.AttemptLog{OpenTimeout: 10})}, []string{"OpenTimeout is 10ns", forgotten}},
		{opts{}, []redelivery.Option{redelivery.WithAttemptLog(redelivery.AttemptLog{Retention: 10})}, []string{"Retention is 10ns", forgotten}},
		{opts{}, []redelivery.Option{redelivery.WithRedeliveryResolution(0)}, []string{"WithRedeliveryResolution is 0s", "1ms to 1m0s"}},
		{opts{}, []redelivery.Option{redelivery.WithRedeliveryResolution(time.Hour)}, []string{"is 1h0m0s"}},
		{opts{}, []redelivery.Option{redelivery.WithMemoryLimit(-1)}, []string{"WithMemoryLimit is -1"}},
		{opts{}, []redelivery.Option{redelivery.WithRedeliveryFrom("disk")}, []string{"WithRedeliveryFrom is disk", "FromMemory"}},
		{opts{}, []redelivery.Option{redelivery.WithLogger(nil)}, []string{"WithLogger is nil"}},
		{opts{}, []redelivery.Option{redelivery.WithMemoryLimit(1), nil}, []string{"option 2 is nil"}},
		{opts{}, []redelivery.Option{redelivery.WithNackRedeliveryDelay(time.Second), redelivery.WithNackRedeliveryBackoff(policy)},
			[]string{"WithNackRedeliveryDelay and WithNackRedeliveryBackoff"}},
		{opts{NackRedeliveryDelay: -1}, nil, []string{"ConsumerOptions.NackRedeliveryDelay is -1ns"}},
		{opts{NackRedeliveryDelay: time.Second}, []redelivery.Option{redelivery.WithNackRedeliveryBackoff(policy)},
			[]string{"WithNackRedeliveryBackoff and ConsumerOptions.NackRedeliveryDelay"}},
		{opts{NackBackoffPolicy: policy}, []redelivery.Option{redelivery.WithNackRedeliveryDelay(time.Second)},
			[]string{"ConsumerOptions.NackBackoffPolicy"}},
		{opts{NackBackoffPolicy: policy, NackRedeliveryDelay: time.Second}, []redelivery.Option{redelivery.WithNackRedeliveryDelay(time.Second)},
			[]string{"WithNackRedeliveryDelay and ConsumerOptions.NackBackoffPolicy"}},
		{opts{DLQ: &pulsar.DLQPolicy{DeadLetterTopic: "d"}}, nil, []string{"DLQ.MaxDeliveries is 0"}},
		{opts{Type: pulsar.Shared}, []redelivery.Option{redelivery.WithReconsumeBackoff(policy)}, []string{"WithReconsumeBackoff", "WithClient"}},
		{opts{Type: pulsar.Shared, RetryEnable: true}, nil, []string{"ConsumerOptions.RetryEnable is true", "WithClient or WithReconsumer"}},
		{opts{DLQ: &pulsar.DLQPolicy{MaxDeliveries: 3}}, nil, []string{"ConsumerOptions.DLQ is set", "WithClient or WithReconsumer"}},
		{opts{}, []redelivery.Option{redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 3})},
			[]string{"WithDeadLetterPolicy is set", "WithClient or WithReconsumer"}},
		{opts{DLQ: &pulsar.DLQPolicy{MaxDeliveries: 3}}, []redelivery.Option{redelivery.WithClient(noClient{}),
			redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 3})}, []string{"DLQ and WithDeadLetterPolicy"}},
		{opts{}, []redelivery.Option{redelivery.WithReconsumer(&reconsume.Reconsumer{}),
			redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{Topic: "dead"})}, []string{"the dead letter topic is dead", "WithReconsumer"}},
		{opts{}, []redelivery.Option{redelivery.WithClient(noClient{}), redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxReconsumes: 3})},
			[]string{"MaxReconsumes without MaxDeliveries", "RetryEnable"}},
		{opts{}, []redelivery.Option{redelivery.WithClient(noClient{}), redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{
			MaxDeliveries: 3, RetryTopic: "retries"})}, []string{"RetryTopic", "RetryEnable"}},
		{opts{}, []redelivery.Option{redelivery.WithClient(noClient{}), redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{Topic: "d"})},
			[]string{"neither MaxDeliveries nor MaxReconsumes", "reconsume.Unlimited"}},
		{opts{RetryEnable: true, Type: pulsar.Shared}, []redelivery.Option{redelivery.WithClient(noClient{}),
			redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{})}, []string{"neither MaxDeliveries nor MaxReconsumes"}},
		{opts{}, []redelivery.Option{redelivery.WithAttemptLog(redelivery.AttemptLog{Topic: "a b/../c"})},
			[]string{"WithAttemptLog's topic is a b/../c", "want topic"}},
		{opts{}, []redelivery.Option{redelivery.WithClient(nil)}, []string{"WithClient is nil"}},
		{opts{Type: pulsar.Shared}, []redelivery.Option{redelivery.WithReconsumeBackoff(nil)}, []string{"WithReconsumeBackoff"}},
		{opts{Type: pulsar.Failover}, []redelivery.Option{redelivery.WithReconsumeBackoff(policy), redelivery.WithClient(noClient{})},
			[]string{"Type is Failover", "Shared or Key_Shared"}},
		{opts{}, []redelivery.Option{redelivery.WithReconsumer(&reconsume.Reconsumer{}), redelivery.WithNackRetryTopic(time.Second)},
			[]string{"Type is Exclusive", "Shared or Key_Shared"}},
		{opts{RetryEnable: true, Type: pulsar.Shared}, []redelivery.Option{redelivery.WithNackRetryTopic(time.Second)},
			[]string{"ConsumerOptions.RetryEnable is true", "WithReconsumer"}},
		{opts{}, []redelivery.Option{redelivery.WithReconsumer(nil)}, []string{"WithReconsumer is nil"}},
		{opts{DLQ: &pulsar.DLQPolicy{MaxDeliveries: 3, DeadLetterTopic: "dead"}},
			[]redelivery.Option{redelivery.WithReconsumer(&reconsume.Reconsumer{})}, []string{"the dead letter topic is persistent://public/default/dead", "of WithReconsumer"}},
	} {
		_, err := testkit.PreparedOptions(c.opts, c.options...)
		require.ErrorIs(t, err, redelivery.ErrInvalidOption)
		for _, want := range c.want {
			assert.ErrorContains(t, err, want)
		}
	}
	for _, option := range []redelivery.Option{redelivery.WithRedeliveryResolution(time.Second),
		redelivery.WithReconsumeBackoff(policy), redelivery.WithNackRetryTopic(time.Second)} {
		_, err := redelivery.Wrap(testkit.NewFake(), option)
		assert.ErrorIs(t, err, redelivery.ErrInvalidOption)
	}
	_, err := redelivery.Wrap(nil)
	assert.ErrorContains(t, err, "consumer is nil")
	_, err = redelivery.Subscribe(nil, opts{})
	assert.ErrorContains(t, err, "client is nil")
}

func TestDeadLetterPolicyWithoutLimitIsAccepted(t *testing.T) {
	for _, o := range []redelivery.Option{
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: reconsume.Unlimited}),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{Topic: "d"}),
	} {
		_, err := testkit.PreparedOptions(pulsar.ConsumerOptions{Type: pulsar.Shared},
			redelivery.WithClient(noClient{}), o,
			redelivery.WithReconsumeBackoff(backoff.Fixed(time.Second)))
		require.NoError(t, err)
	}
	_, err := testkit.PreparedOptions(pulsar.ConsumerOptions{}, redelivery.WithClient(noClient{}),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: reconsume.Unlimited}))
	require.NoError(t, err)
}

// Upstream refuses a DLQPolicy without a topic. If a Reconsumer has the topic, SubscribeWith accepts the policy, and
// does not pass it to upstream.
func TestSubscribeWithLeavesDeadLettersToTheReconsumer(t *testing.T) {
	prepared, err := testkit.PreparedOptions(pulsar.ConsumerOptions{DLQ: &pulsar.DLQPolicy{MaxDeliveries: 3}},
		redelivery.WithReconsumer(&reconsume.Reconsumer{}))
	require.NoError(t, err)
	require.Nil(t, prepared.DLQ)
}

func TestOptionWithoutEffectIsLogged(t *testing.T) {
	dlq := &pulsar.DLQPolicy{MaxDeliveries: 3, DeadLetterTopic: "dead"}
	kept := &pulsar.DLQPolicy{MaxDeliveries: 3, DeadLetterTopic: "dead", InitialSubscriptionName: "inspect"}
	type opts = pulsar.ConsumerOptions
	client := []redelivery.Option{redelivery.WithClient(noClient{})}
	for want, c := range map[string]struct {
		opts    opts
		options []redelivery.Option
	}{
		"dead letters without InitialSubscriptionName": {opts{Type: pulsar.Shared, DLQ: dlq}, client},
		"the retry topic does not delay":               {opts{Type: pulsar.Failover, RetryEnable: true}, client},
		"delays messages only on Shared":               {opts{}, []redelivery.Option{redelivery.WithReconsumer(&reconsume.Reconsumer{})}},
		"of non-persistent://public/default/t are not": {opts{Topic: "non-persistent://public/default/t"}, nil},
		"of non-persistent://public/default/u are not": {opts{Topics: []string{"a", "non-persistent://public/default/u"}}, nil},
		"of non-persistent://public/default/p.* are":   {opts{TopicsPattern: "non-persistent://public/default/p.*"}, nil},
		"checks.md#policy-range": {opts{}, []redelivery.Option{redelivery.WithNackRedeliveryBackoff(
			backoff.WithJitter(backoff.Exponential{Min: time.Minute, Max: time.Minute}, 0.1))}},
		"checks.md#nack-retry-topic":       {opts{Type: pulsar.Shared, RetryEnable: true}, append(client, redelivery.WithNackRetryTopic(time.Hour))},
		"use up the client's memory limit": {opts{Type: pulsar.Shared, DLQ: kept, EnableAutoScaledReceiverQueueSize: true}, client},
		"wins over NackRedeliveryDelay":    {opts{NackBackoffPolicy: backoff.Fixed(time.Second), NackRedeliveryDelay: time.Second}, nil},

		"":         {opts{Type: pulsar.Shared, DLQ: kept, RetryEnable: true}, client},
		"a switch": {opts{Type: pulsar.Failover, DLQ: dlq, RetryEnable: true}, append(client, redelivery.WithoutChecks())},
	} {
		var log bytes.Buffer
		c.opts.SubscriptionName = "s"
		if c.opts.Topics == nil && c.opts.TopicsPattern == "" {
			c.opts.Topic = cmp.Or(c.opts.Topic, "t")
		}
		consumer, _ := testkit.SubscribeFakeWith(t, testkit.NewFake(), c.opts,
			append(slices.Clip(c.options), testkit.LogTo(&log))...)
		consumer.Close()
		if want == "" || want == "a switch" {
			require.NotContains(t, log.String(), "WARN")
		} else {
			require.Equal(t, 1, strings.Count(log.String(), "WARN"), log.String())
			require.Equal(t, 1, strings.Count(log.String(), want), log.String())
		}
	}
}

// A policy may panic, or count its calls.
func TestSubscribeCallsNoPolicy(t *testing.T) {
	policy := backoff.Func(func(uint32) time.Duration { panic("called") })
	opts := pulsar.ConsumerOptions{Topic: "t", SubscriptionName: "s", Type: pulsar.Shared,
		DLQ: &pulsar.DLQPolicy{MaxDeliveries: 3}}
	consumer, _ := testkit.SubscribeFakeWith(t, testkit.NewFake(), opts, redelivery.WithClient(noClient{}),
		redelivery.WithNackRedeliveryBackoff(policy),
		redelivery.WithAckTimeout(time.Second), redelivery.WithAckTimeoutRedeliveryBackoff(policy), redelivery.WithReconsumeBackoff(policy),
		redelivery.WithNackRetryTopic(time.Minute))
	consumer.Close()
}

// The retry and dead letter topics would be named after the non-persistent topic, and the broker would keep no message
// in them.
func TestNonPersistentTopicsHaveNoDeadLetters(t *testing.T) {
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
	opts := b.Options("non-persistent://public/default/t", pulsar.Shared)
	r, err := reconsume.New(b.Client, reconsume.Options{Topic: b.NewTopic(0), Subscription: testkit.Subscription})
	require.NoError(t, err)
	defer r.Close()
	for _, option := range []redelivery.Option{
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 3}),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 3, Discard: true}),
		redelivery.WithReconsumer(r),
	} {
		_, err := redelivery.Subscribe(b.Client, opts, option)
		require.ErrorIs(t, err, redelivery.ErrInvalidOption)
		require.ErrorContains(t, err, "the topic is non-persistent://public/default/t")
	}
}

func TestZeroQueueConsumerKeepsNothingInMemory(t *testing.T) {
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
	opts := b.Options(b.NewTopic(0), pulsar.Shared)
	opts.EnableZeroQueueConsumer = true
	_, err := redelivery.Subscribe(b.Client, opts, redelivery.WithRedeliveryFrom(redelivery.FromMemory))
	require.ErrorIs(t, err, redelivery.ErrInvalidOption)
	require.ErrorContains(t, err, "WithRedeliveryFrom is memory, want FromAuto or FromBroker")
	c := b.Subscribe(opts)
	require.Zero(t, c.Options().MemoryLimit)
	require.Zero(t, c.Options().ReceiverQueueSize)
}

func TestSubscribeWithLeavesTheCallersOptionsAlone(t *testing.T) {
	bits := int64(3)
	opts := pulsar.ConsumerOptions{Topics: []string{"a", "b"}, NackRedeliveryDelay: time.Second,
		NackPrecisionBit: &bits,
		DLQ:              &pulsar.DLQPolicy{MaxDeliveries: 3, DeadLetterTopic: "dead"}, Decryption: &pulsar.MessageDecryptionInfo{
			ConsumerCryptoFailureAction: crypto.ConsumerCryptoFailureActionDiscard}}
	prepared, err := testkit.PreparedOptions(opts, redelivery.WithRedeliveryResolution(20*time.Millisecond),
		redelivery.WithClient(noClient{}))
	require.NoError(t, err)
	assert.Equal(t, 3*(20*time.Millisecond)*15/16, prepared.NackRedeliveryDelay)
	assert.Equal(t, time.Second, opts.NackRedeliveryDelay)
	assert.EqualValues(t, 3, *opts.NackPrecisionBit)
	assert.NotSame(t, opts.DLQ, prepared.DLQ)
	assert.NotSame(t, opts.Decryption, prepared.Decryption)
	prepared.Topics[0] = "changed"
	assert.Equal(t, []string{"a", "b"}, opts.Topics)
}

// A program may divide its topics among Consumers: the topics after those of this one belong to the next.
func TestSubscribeLeavesTopicsAfterItsOwnAlone(t *testing.T) {
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
	topics := []string{"a", "b", "c"}
	opts := pulsar.ConsumerOptions{Topics: topics[:2], SubscriptionName: "s", Type: pulsar.Shared}
	c, err := redelivery.Subscribe(b.Client, opts)
	require.NoError(t, err)
	defer c.Close()
	assert.Equal(t, []string{"a", "b", "c"}, topics)
}

// The list says whether the Consumer implements the method or passes it on. A new method needs a decision.
func TestEveryMethodOfUpstreamIsListed(t *testing.T) {
	const ours, inner = "ours", "passed on"
	decided := map[string]string{
		"Ack": ours, "AckCumulative": ours, "AckID": ours, "AckIDCumulative": ours, "AckIDList": ours, "AckWithTxn": ours,
		"Chan": ours, "Close": ours, "GetLastMessageIDs": ours, "Nack": ours, "NackID": ours, "Name": inner,
		"Receive": ours, "ReconsumeLater": ours, "ReconsumeLaterWithCustomProperties": ours, "Seek": ours,
		"SeekByTime": ours, "Subscription": inner, "Unsubscribe": ours, "UnsubscribeForce": ours,
	}
	upstream := reflect.TypeFor[pulsar.Consumer]()
	for i := range upstream.NumMethod() {
		name := upstream.Method(i).Name
		assert.Contains(t, decided, name, "pulsar.Consumer has a new method")
		delete(decided, name)
	}
	assert.Empty(t, decided, "pulsar.Consumer has lost methods")
	var _ pulsar.Consumer = (*redelivery.Consumer)(nil)
}

// noClient is a client that finds no topics.
type noClient struct{ pulsar.Client }

func (noClient) TopicPartitions(string) ([]string, error) { return nil, nil }

// A service often makes its options once and gives them to several consumers. The race detector notices an option that
// writes to memory which both consumers use.
func TestOptionsSharedByTwoConsumersHaveNoRace(t *testing.T) {
	policy := backoff.Fixed(time.Second)
	for name, option := range map[string]redelivery.Option{
		"WithNackRedeliveryBackoff":       redelivery.WithNackRedeliveryBackoff(policy),
		"WithNackRedeliveryDelay":         redelivery.WithNackRedeliveryDelay(time.Second),
		"WithAckTimeout":                  redelivery.WithAckTimeout(time.Second),
		"WithAckTimeoutRedeliveryBackoff": redelivery.WithAckTimeoutRedeliveryBackoff(policy),
		"WithReconsumeBackoff":            redelivery.WithReconsumeBackoff(policy),
		"WithNackRetryTopic":              redelivery.WithNackRetryTopic(time.Second),
		"WithClient":                      redelivery.WithClient(noClient{}),
		"WithReconsumer":                  redelivery.WithReconsumer(&reconsume.Reconsumer{}),
		"WithRedeliveryResolution":        redelivery.WithRedeliveryResolution(time.Second),
		"WithRedeliveryFrom":              redelivery.WithRedeliveryFrom(""),
		"WithMemoryLimit":                 redelivery.WithMemoryLimit(1),
		"WithObserver":                    redelivery.WithObserver(redelivery.Observer{}),
		"WithLogger":                      redelivery.WithLogger(slog.Default()),
		"WithoutChecks":                   redelivery.WithoutChecks(),
		"WithoutBatchIndexAcks":           redelivery.WithoutBatchIndexAcks(),
		"WithAttemptLog":                  redelivery.WithAttemptLog(redelivery.AttemptLog{}),
		"WithDeadLetterPolicy":            redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{Topic: "dead"}),
		"WithDeadBeforeTTL":               redelivery.WithDeadBeforeTTL(time.Minute),
	} {
		var uses sync.WaitGroup
		for range 2 {
			uses.Go(func() {
				_, err := redelivery.Subscribe(noClient{}, pulsar.ConsumerOptions{}, option, redelivery.WithMemoryLimit(-1))
				assert.ErrorContains(t, err, "WithMemoryLimit is -1", name)
			})
		}
		uses.Wait()
	}
}
