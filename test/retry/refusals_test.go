package retry

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// If the namespace refuses the delay of a retry, the Consumer publishes the retry without it. The Consumer that
// receives the retry holds it back.
func TestRefusedDelayIsHeldByTheConsumer(t *testing.T) {
	b := testkit.NewBroker(t)
	if b.InProcess != nil {
		t.Skip("the broker in process allows every delay")
	}
	namespace := b.Namespace()
	b.Admin("POST", "namespaces/"+strings.Trim(strings.TrimPrefix(namespace, "persistent://"), "/"), "/delayedDelivery",
		map[string]any{"active": true, "tickTime": 1000, "maxDeliveryDelayInMillis": 5000}, nil)
	topic := namespace + "orders"
	c := b.Subscribe(b.Options(topic, pulsar.Shared), redelivery.WithReconsumeBackoff(backoff.Fixed(20*time.Second)))
	b.Publish(pulsar.ProducerOptions{Topic: topic}, &pulsar.ProducerMessage{Payload: []byte("x")})
	begin := time.Now()
	require.NoError(t, c.ReconsumeLaterNext(t.Context(), testkit.Next(t, c, 10*time.Second)))
	require.Less(t, time.Since(begin), 15*time.Second)
	retry := testkit.Next(t, c, 30*time.Second)
	require.GreaterOrEqual(t, time.Since(retry.PublishTime()), 20*time.Second)
	require.Equal(t, "1", retry.Properties()["RECONSUMETIMES"])
}

// The dead letter topic has a lower limit for the size of messages.
func TestDeadLetterThatIsRefusedForItsSizeIsPublishedInChunks(t *testing.T) {
	b := testkit.NewBroker(t)
	if b.InProcess != nil {
		t.Skip("the broker in process has no maxMessageSize")
	}
	topic := b.NewTopic(0)
	dead := b.SubscribeDeadLetters(topic)
	b.Admin("POST", testkit.DeadLetterTopic(topic), "/maxMessageSize", 8192, nil)
	c := b.Subscribe(b.Options(topic, pulsar.Shared),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 1}))
	payload := make([]byte, 20_000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(payload) // random: it does not compress
	time.Sleep(time.Second)                          // until the policy takes effect
	b.Publish(pulsar.ProducerOptions{Topic: topic}, &pulsar.ProducerMessage{Payload: payload, Key: "k"})
	require.NoError(t, c.DeadLetter(t.Context(), testkit.Next(t, c, 10*time.Second), errors.New("no luck")))
	letter := testkit.Next(t, dead, 10*time.Second)
	require.Equal(t, payload, letter.Payload())
	require.Equal(t, "k", letter.Key())
	require.Equal(t, "no luck", letter.Properties()["EXCEPTION_MESSAGE"])
}

// The topic of DeadLetterTo does not exist, or is terminated.
func TestDeadLetterForAnUnusableTopicGoesToTheUsualOne(t *testing.T) {
	b := testkit.NewBroker(t)
	topic, terminated := b.NewTopic(0), b.NewTopic(0)
	b.Admin("POST", terminated, "/terminate", nil, nil)
	names := []string{terminated}
	if b.InProcess == nil {
		names = append(names, "persistent://public/no-such-namespace/letters")
	}
	dead := b.SubscribeDeadLetters(topic)
	c := b.Subscribe(b.Options(topic, pulsar.Shared),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 1}))
	for _, name := range names {
		b.Send(topic, 1, false)
		require.NoError(t, c.NackWithReason(testkit.Next(t, c, 10*time.Second),
			redelivery.DeadLetterTo(name, errors.New("no luck"))))
		letter := testkit.Next(t, dead, 20*time.Second)
		require.Equal(t, name, letter.Properties()["DEAD_LETTER_TOPIC"])
		require.Equal(t, "no luck", letter.Properties()["EXCEPTION_MESSAGE"])
	}
	b.Settles(topic, 0)
}
