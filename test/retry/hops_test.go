package retry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
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
	"github.com/pulsar-redelivery/redelivery/worker"
)

// forged returns properties like those of a retry that another consumer published.
func forged(topic string) map[string]string {
	return map[string]string{
		"RECONSUMETIMES": "4", "DELAY_TIME": "16000", "DELAY_LEVEL": "4", "NACK_COUNT": "4:7", "ATTEMPT_COUNT": "9", "ORIGIN_PUBLISH_TIME": "1",
		"REAL_TOPIC": topic, "REAL_SUBSCRIPTION": "other", "ORIGIN_MESSAGE_ID": "1:2:3", "ORIGIN_MESSAGE_IDY_TIME": "1:2:3",
		"ORIGIN_TOPIC": topic, "EXCEPTION_MESSAGE": "of another hop", "EXCEPTION_TYPE": "*other.Error", "mine": "kept",
	}
}

// The first retry of a message from the consumer's main topic has the number 1 and the first delay.
func TestForgedPropertiesOfARetryAreIgnored(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	c := b.Subscribe(b.Options(topic, pulsar.Shared),
		redelivery.WithReconsumeBackoff(backoff.DelayLevels{time.Second, 16 * time.Second}),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxReconsumes: 1}))
	dead := b.SubscribeDeadLetters(topic)
	b.Publish(pulsar.ProducerOptions{Topic: topic},
		&pulsar.ProducerMessage{Payload: []byte("x"), Properties: forged("persistent://public/default/elsewhere")})
	first := testkit.Next(t, c, 10*time.Second)
	require.NoError(t, c.ReconsumeLaterNext(t.Context(), first))
	retry := testkit.Next(t, c, 10*time.Second)
	require.Equal(t, uint32(0), retry.RedeliveryCount())
	props := retry.Properties()
	for name, want := range map[string]string{"RECONSUMETIMES": "1", "DELAY_TIME": "1000", "REAL_TOPIC": topic, "REAL_SUBSCRIPTION": testkit.Subscription,
		"ORIGIN_MESSAGE_ID": first.ID().String(), "mine": "kept"} {
		require.Equal(t, want, props[name], name)
	}
	for _, name := range []string{"DELAY_LEVEL", "NACK_COUNT", "ORIGIN_TOPIC", "EXCEPTION_MESSAGE", "EXCEPTION_TYPE"} {
		require.NotContains(t, props, name)
	}
	require.NoError(t, c.ReconsumeLaterNext(t.Context(), retry))
	letter := testkit.Next(t, dead, 10*time.Second)
	require.Equal(t, "2", letter.Properties()["RECONSUMETIMES"])
	require.Equal(t, topic, letter.Properties()["REAL_TOPIC"])
	require.Equal(t, "reconsumed 1 times", letter.Properties()["EXCEPTION_MESSAGE"])
}

// A consumer of a dead letter topic has a retry topic of its own. If a letter becomes a dead letter again, the new
// letter names the first dead letter topic as its origin.
func TestDeadLetterTopicWithRetriesStartsAtTheFirst(t *testing.T) {
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	c := b.Subscribe(b.Options(topic, pulsar.Shared), redelivery.WithReconsumeBackoff(backoff.Fixed(0)),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxReconsumes: 3,
			InitialSubscriptionName: testkit.Subscription}))
	b.Send(topic, 1, false)
	for range 4 {
		require.NoError(t, c.ReconsumeLaterNext(t.Context(), testkit.Next(t, c, 10*time.Second)))
	}
	letters := topic + "-" + testkit.Subscription + "-DLQ"
	second := b.Subscribe(b.Options(letters, pulsar.Shared), redelivery.WithReconsumeBackoff(backoff.Fixed(0)),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxReconsumes: 3}))
	dead := b.SubscribeDeadLetters(letters)
	for n := range 4 {
		msg := testkit.Next(t, second, 10*time.Second)
		if n > 0 {
			require.Equal(t, fmt.Sprint(n), msg.Properties()["RECONSUMETIMES"])
		}
		require.NoError(t, second.ReconsumeLaterNext(t.Context(), msg))
	}
	props := testkit.Next(t, dead, 10*time.Second).Properties()
	require.Equal(t, "4", props["RECONSUMETIMES"])
	require.Equal(t, letters, props["REAL_TOPIC"])
}

// The first service forwards a retry with its properties to the topic of the second.
func TestDeadLetterOfTheSecondServiceNamesItsTopic(t *testing.T) {
	b := testkit.NewBroker(t)
	orders, ship := b.NewTopic(0), b.NewTopic(0)
	first := b.Subscribe(b.Options(orders, pulsar.Shared), redelivery.WithReconsumeBackoff(backoff.Fixed(0)))
	second := b.Subscribe(b.Options(ship, pulsar.Shared),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 3}))
	dead := b.SubscribeDeadLetters(ship)
	b.Send(orders, 1, false)
	require.NoError(t, first.ReconsumeLaterNext(t.Context(), testkit.Next(t, first, 10*time.Second)))
	retry := testkit.Next(t, first, 10*time.Second)
	b.Publish(pulsar.ProducerOptions{Topic: ship},
		&pulsar.ProducerMessage{Payload: retry.Payload(), Properties: maps.Clone(retry.Properties())})
	require.NoError(t, first.Ack(retry))
	msg := testkit.Next(t, second, 10*time.Second)
	require.NoError(t, second.DeadLetter(t.Context(), msg, errors.New("no ship")))
	props := testkit.Next(t, dead, 10*time.Second).Properties()
	require.Equal(t, ship, props["REAL_TOPIC"])
	require.Equal(t, ship, props["ORIGIN_TOPIC"])
	require.Equal(t, msg.ID().String(), props["ORIGIN_MESSAGE_ID"])
	require.Equal(t, "no ship", props["EXCEPTION_MESSAGE"])
	for _, name := range []string{"RECONSUMETIMES", "DELAY_TIME", "DELAY_LEVEL"} {
		require.NotContains(t, props, name)
	}
}

// The publication of a retry does not count.
func TestMaxAgeCountsFromFirstPublication(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	c := b.Subscribe(b.Options(topic, pulsar.Shared), redelivery.WithReconsumeBackoff(backoff.Fixed(0)),
		redelivery.WithNackRetryTopic(time.Millisecond),
		redelivery.WithNackRedeliveryDelay(time.Second), redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxReconsumes: 100}))
	dead := b.SubscribeDeadLetters(topic)
	b.Send(topic, 1, false)
	w, err := worker.New(c, func(context.Context, pulsar.Message) error { return errors.New("no luck") },
		worker.WithMaxAge(6*time.Second))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	props := testkit.Next(t, dead, 30*time.Second).Properties()
	cancel()
	require.NoError(t, <-done)
	require.Equal(t, "older than 6s: no luck", props["EXCEPTION_MESSAGE"])
	require.NotEqual(t, "1", props["RECONSUMETIMES"])
	require.Equal(t, props["RECONSUMETIMES"], props["ATTEMPT_COUNT"], "ATTEMPT_COUNT differs from RECONSUMETIMES")
}

// A short name in this library's options belongs to the namespace of the topic, but one in DLQPolicy to public/default,
// as in pulsar-client-go.
func TestShortTopicNamesGetTheNamespaceOfTheTopic(t *testing.T) {
	b := testkit.NewBroker(t)
	namespace := b.Namespace()
	unique := fmt.Sprintf("%08x", rand.Uint32())
	opts := b.Options(namespace+"orders", pulsar.Shared)
	var log logtest.Buffer
	ours := b.Subscribe(opts, redelivery.WithReconsumeBackoff(backoff.Fixed(0)),
		redelivery.WithAttemptLog(redelivery.AttemptLog{Topic: "log"}),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{Topic: "letters", RetryTopic: "retries",
			InitialSubscriptionName: testkit.Subscription}), testkit.LogTo(&log))
	for range 2 {
		b.Publish(pulsar.ProducerOptions{Topic: namespace + "orders"}, &pulsar.ProducerMessage{Payload: []byte("x")})
	}
	msg := testkit.Next(t, ours, 10*time.Second)
	require.NoError(t, ours.ReconsumeLaterAfter(t.Context(), msg, 0, nil))
	var retried, letter pulsar.Message
	for range 2 {
		if msg := testkit.Next(t, ours, 10*time.Second); msg.Topic() == namespace+"retries" {
			retried = msg
		} else {
			letter = msg
		}
	}
	require.NotNil(t, retried, "no message came from the retry topic in the consumer's namespace")
	require.NoError(t, ours.DeadLetter(t.Context(), retried, errors.New("no luck")))
	require.NoError(t, ours.DeadLetter(t.Context(), letter, redelivery.DeadLetterTo("unread", errors.New("no luck"))))
	require.EventuallyWithT(t, func(t *assert.CollectT) { // the broker may list a new topic late
		var topics []string
		b.Admin("GET", strings.TrimSuffix(namespace, "/"), "", nil, &topics)
		for _, name := range []string{"orders", "retries", "letters", "unread", "log"} {
			assert.Contains(t, topics, namespace+name)
		}
	}, testkit.Patience, 20*time.Millisecond)
	require.NotContains(t, log.String(), "topic_in_namespace")
	ours.Close()

	var second logtest.Buffer
	opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 1, DeadLetterTopic: "letters-" + unique}
	theirs := b.Subscribe(opts, testkit.LogTo(&second))
	dead, err := b.Client.Subscribe(b.Options("persistent://public/default/letters-"+unique, pulsar.Exclusive))
	require.NoError(t, err)
	defer dead.Close()
	b.Publish(pulsar.ProducerOptions{Topic: namespace + "orders"}, &pulsar.ProducerMessage{Payload: []byte("x")})
	theirs.Nack(testkit.Next(t, theirs, 10*time.Second))
	testkit.Next(t, dead, 10*time.Second)
	require.Contains(t, second.String(), "as in pulsar-client-go, it is of public/default; write the whole name")
}

// The message was published with empty REAL_… and ORIGIN_… properties. It is retried like any other.
func TestRetryOfMessageWithEmptyOriginIsNotEarly(t *testing.T) {
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
	delay := 100 * time.Millisecond
	c := b.Subscribe(b.Options("t", pulsar.Shared), redelivery.WithNackRedeliveryDelay(delay),
		redelivery.WithReconsumeBackoff(backoff.Fixed(delay)),
		redelivery.WithNackRetryTopic(delay), redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 3}))
	dead := b.SubscribeDeadLetters("t")
	b.Publish(pulsar.ProducerOptions{Topic: "t"},
		&pulsar.ProducerMessage{Payload: []byte("x"), Properties: map[string]string{pulsar.SysPropertyRealTopic: "",
			pulsar.SysPropertyOriginMessageID: ""}})
	var nacked time.Time
	for n := range uint32(3) {
		msg := testkit.Next(t, c, 10*time.Second)
		require.Equal(t, n, msg.RedeliveryCount())
		require.GreaterOrEqual(t, time.Since(nacked), delay)
		nacked = time.Now()
		c.Nack(msg)
	}
	testkit.Next(t, dead, 10*time.Second)
}
