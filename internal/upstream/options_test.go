package upstream_test

import (
	"math"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/upstream"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

func TestOptionsSetTheTickOfRequests(t *testing.T) {
	hooks := newHooks()
	bits := int64(8)
	opts := hooks.Options(pulsar.ConsumerOptions{Topic: "t", NackRedeliveryDelay: time.Hour, NackPrecisionBit: &bits,
		EnableDefaultNackBackoffPolicy: true, NackBackoffPolicy: noBackoff{}},
		upstream.Plan{Resolution: 16 * time.Second, Channel: 7})
	require.Equal(t, 15*time.Second, upstream.Tick(16*time.Second), "the tick may divide a round delay")
	require.Equal(t, 3*15*time.Second, opts.NackRedeliveryDelay, "the delay is not three ticks")
	require.EqualValues(t, 62, *opts.NackPrecisionBit)
	require.EqualValues(t, 8, bits)
	require.Nil(t, opts.NackBackoffPolicy)
	require.False(t, opts.EnableDefaultNackBackoffPolicy)
	require.Equal(t, 7, cap(opts.MessageChannel))
	require.Equal(t, pulsar.ConsumerInterceptors{hooks}, opts.Interceptors)
	require.Nil(t, opts.AckGroupingOptions, "the groups of acknowledgements are not left to pulsar-client-go")
}

type noBackoff struct{}

func (noBackoff) Next(uint32) time.Duration { return time.Hour }

func TestRequestsGoOutWithTheNextTick(t *testing.T) {
	broker := pulsartest.NewServer(t)
	consumer := subscribe(t, broker.Client(t), newHooks(),
		pulsar.ConsumerOptions{Topic: "t", Type: pulsar.Shared},
		upstream.Plan{Resolution: 50 * time.Millisecond, Channel: 10})
	publish(t, broker, "t", 1)
	start := time.Now()
	for count := range 5 {
		cm := waittest.Next(t, consumer.Chan())
		require.EqualValues(t, count, cm.RedeliveryCount())
		consumer.NackID(cm.ID())
	}
	require.Less(t, time.Since(start), waittest.Limit, "requests wait for pulsar-client-go's own delay, a minute")
}

func TestOptionsSetHowAcknowledgementsAreGrouped(t *testing.T) {
	own := &pulsar.AckGroupingOptions{MaxSize: 3, MaxTime: time.Hour}
	for _, c := range []struct {
		name    string
		ackTime time.Duration
		want    *pulsar.AckGroupingOptions
	}{
		{"left to the options", 0, own},
		{"set", time.Second, &pulsar.AckGroupingOptions{MaxSize: 1000, MaxTime: time.Second}},
	} {
		t.Run(c.name, func(t *testing.T) {
			given := pulsar.ConsumerOptions{AckGroupingOptions: own}
			opts := newHooks().Options(given, upstream.Plan{AckTime: c.ackTime})
			require.Equal(t, c.want, opts.AckGroupingOptions)
			require.EqualValues(t, 3, own.MaxSize, "the caller's AckGroupingOptions were changed")
		})
	}
}

func TestOptionsListenToActiveConsumersOnFailoverOnly(t *testing.T) {
	own := listener{}
	for _, kind := range []pulsar.SubscriptionType{pulsar.Exclusive, pulsar.Shared, pulsar.Failover, pulsar.KeyShared} {
		hooks := newHooks()
		opts := hooks.Options(pulsar.ConsumerOptions{Type: kind, EventListener: own}, upstream.Plan{})
		if kind == pulsar.Failover {
			require.Same(t, hooks, opts.EventListener)
		} else {
			require.Equal(t, own, opts.EventListener, "subscription type %d", kind)
		}
	}
}

type listener struct{}

func (listener) BecameActive(pulsar.Consumer, string, int32)   {}
func (listener) BecameInactive(pulsar.Consumer, string, int32) {}

func TestOptionsSubscribeToTheRetryTopicAndPublishNothing(t *testing.T) {
	const retry = "s-RETRY"
	own := func() *pulsar.DLQPolicy {
		return &pulsar.DLQPolicy{MaxDeliveries: 3, RetryLetterTopic: "r", DeadLetterTopic: "d"}
	}
	pattern := &pulsar.DLQPolicy{MaxDeliveries: math.MaxUint32, RetryLetterTopic: retry, DeadLetterTopic: retry}
	for _, c := range []struct {
		name   string
		opts   pulsar.ConsumerOptions
		plan   upstream.Plan
		topic  string
		topics []string
		enable bool // RetryEnable
		dlq    *pulsar.DLQPolicy
	}{
		{name: "nothing set", opts: pulsar.ConsumerOptions{Topic: "t"}, topic: "t"},
		{name: "a dead letter topic, to which pulsar-client-go does not publish",
			opts: pulsar.ConsumerOptions{Topic: "t", DLQ: own()}, topic: "t"},
		{name: "RetryEnable, for which the library publishes",
			opts: pulsar.ConsumerOptions{Topic: "t", RetryEnable: true, DLQ: own()}, topic: "t"},
		{name: "a topic and its retry topic",
			opts: pulsar.ConsumerOptions{Topic: "t", RetryEnable: true, DLQ: own()},
			plan: upstream.Plan{RetryTopic: retry}, topics: []string{"t", retry}},
		{name: "topics and their retry topic",
			opts: pulsar.ConsumerOptions{Topics: []string{"t", "u"}, RetryEnable: true},
			plan: upstream.Plan{RetryTopic: retry}, topics: []string{"t", "u", retry}},
		{name: "a pattern and its retry topic", opts: pulsar.ConsumerOptions{TopicsPattern: "t.*", DLQ: own()},
			plan: upstream.Plan{RetryTopic: retry}, enable: true, dlq: pattern},
		{name: "the application's Reconsumer", plan: upstream.Plan{Reconsumer: true},
			opts:  pulsar.ConsumerOptions{Topic: "t", RetryEnable: true, DLQ: own()},
			topic: "t", enable: true,
			dlq: &pulsar.DLQPolicy{MaxDeliveries: math.MaxUint32, RetryLetterTopic: "r", DeadLetterTopic: "d"}},
		{name: "the application's Reconsumer, no policy", plan: upstream.Plan{Reconsumer: true},
			opts:  pulsar.ConsumerOptions{Topic: "t", RetryEnable: true},
			topic: "t", enable: true, dlq: &pulsar.DLQPolicy{MaxDeliveries: math.MaxUint32}},
		{name: "the application's Reconsumer for dead letters", plan: upstream.Plan{Reconsumer: true},
			opts: pulsar.ConsumerOptions{Topic: "t", DLQ: own()}, topic: "t"},
		{name: "RetryEnable without a queue, which pulsar-client-go refuses",
			opts: pulsar.ConsumerOptions{Topic: "t", RetryEnable: true, EnableZeroQueueConsumer: true}, topic: "t",
			enable: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			opts := newHooks().Options(c.opts, c.plan)
			require.Equal(t, c.topic, opts.Topic)
			require.Equal(t, c.topics, opts.Topics)
			require.Equal(t, c.opts.TopicsPattern, opts.TopicsPattern)
			require.Equal(t, c.enable, opts.RetryEnable)
			require.Equal(t, c.dlq, opts.DLQ)
			if c.opts.DLQ != nil {
				require.Equal(t, own(), c.opts.DLQ, "the caller's DLQ was changed")
			}
		})
	}
}

func TestOptionsDeliverMessagesThatWouldBeNackedAsUndecryptable(t *testing.T) {
	const fail, discard, consume = crypto.ConsumerCryptoFailureActionFail, crypto.ConsumerCryptoFailureActionDiscard,
		crypto.ConsumerCryptoFailureActionConsume
	keys := crypto.NewFileKeyReader("public", "private")
	for _, c := range []struct {
		name       string
		decryption *pulsar.MessageDecryptionInfo
		nacks      bool // by the application's options
		want       int
	}{
		{"by default", nil, true, consume},
		{"fail", &pulsar.MessageDecryptionInfo{KeyReader: keys, ConsumerCryptoFailureAction: fail}, true, consume},
		{"discard", &pulsar.MessageDecryptionInfo{KeyReader: keys, ConsumerCryptoFailureAction: discard}, false,
			discard},
		{"consume", &pulsar.MessageDecryptionInfo{KeyReader: keys, ConsumerCryptoFailureAction: consume}, false,
			consume},
	} {
		t.Run(c.name, func(t *testing.T) {
			given := pulsar.ConsumerOptions{Decryption: c.decryption}
			require.Equal(t, c.nacks, upstream.NacksUndecryptable(given))
			opts := newHooks().Options(given, upstream.Plan{})
			require.Equal(t, c.want, opts.Decryption.ConsumerCryptoFailureAction)
			require.Equal(t, c.nacks, upstream.NacksUndecryptable(given), "the caller's Decryption was changed")
			if c.decryption != nil {
				require.Equal(t, keys, opts.Decryption.KeyReader)
				require.NotSame(t, c.decryption, opts.Decryption, "upstream would change the caller's Decryption")
			}
		})
	}
}

// pulsar-client-go normalizes, fills in and appends to the options that it gets.
func TestSubscribingDoesNotChangeTheCallersOptions(t *testing.T) {
	client := pulsartest.NewServer(t).Client(t)
	topics := append(make([]string, 0, 10), "t", "u") // with room for another
	dlq := &pulsar.DLQPolicy{MaxDeliveries: 3}
	decryption := &pulsar.MessageDecryptionInfo{KeyReader: crypto.NewFileKeyReader("public", "private")}
	for _, p := range []upstream.Plan{{RetryTopic: "s-RETRY"}, {Reconsumer: true}} {
		subscribe(t, client, newHooks(), pulsar.ConsumerOptions{Topics: topics, Type: pulsar.Shared, RetryEnable: true,
			DLQ: dlq, Decryption: decryption}, p)
		require.Equal(t, []string{"t", "u", ""}, topics[:3])
		require.Equal(t, &pulsar.DLQPolicy{MaxDeliveries: 3}, dlq)
		require.Nil(t, decryption.MessageCrypto)
		require.Equal(t, crypto.ConsumerCryptoFailureActionFail, decryption.ConsumerCryptoFailureAction)
	}
}
