package testkit

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// Broker is a broker for a test, and a client of it.
type Broker struct {
	T         testing.TB         // the test, which fails if the broker does, and closes everything at its end
	URL       string             // pulsar://host:port
	AdminURL  string             // http://host:port
	Client    pulsar.Client      // connected to URL
	InProcess *pulsartest.Server // nil if the broker is a real one
}

// NewBroker connects to the broker that PULSAR_URL and PULSAR_ADMIN_URL name. If they are not set, it starts a broker
// in this process with options.
func NewBroker(t testing.TB, options ...pulsartest.Option) *Broker {
	if !HasRealBroker() {
		return NewBrokerInProcess(t, pulsar.ClientOptions{}, options...)
	}
	b := &Broker{T: t, URL: os.Getenv("PULSAR_URL"), AdminURL: os.Getenv("PULSAR_ADMIN_URL")}
	b.Connect(pulsar.ClientOptions{})
	return b
}

// NewBrokerInProcess starts a broker with options in this process, and connects to it with o.
func NewBrokerInProcess(t testing.TB, o pulsar.ClientOptions, options ...pulsartest.Option) *Broker {
	server := pulsartest.NewServer(t, options...)
	b := &Broker{T: t, URL: server.URL(), AdminURL: server.AdminURL(), InProcess: server}
	b.Connect(o)
	return b
}

// Connect replaces the client by one with the options o, in which it sets URL and Logger.
func (b *Broker) Connect(o pulsar.ClientOptions) {
	o.URL, o.Logger = b.URL, logtest.Client(b.T)
	var err error
	b.Client, err = pulsar.NewClient(o)
	require.NoError(b.T, err)
	b.T.Cleanup(b.Client.Close)
}

// NewTopic returns the name of a new topic with the given number of partitions; 0 for an unpartitioned topic.
func (b *Broker) NewTopic(partitions int) string {
	name := fmt.Sprintf("persistent://public/default/t-%08x", rand.Uint32())
	if partitions > 0 {
		b.Admin("PUT", name, "/partitions", partitions, nil)
	} else {
		b.Admin("PUT", name, "", nil, nil)
	}
	return name
}

// AwaitListed waits until the real broker lists a new topic, so that the consumer of a pattern finds it.
func (b *Broker) AwaitListed(topic string) {
	if b.InProcess != nil {
		return
	}
	require.Eventually(b.T, func() bool {
		var topics []string
		b.Admin("GET", "persistent/public/default", "", nil, &topics)
		return slices.Contains(topics, topic)
	}, Patience, 20*time.Millisecond)
}

// AwaitPermits waits until the broker may send messages to a consumer of a topic without partitions. Otherwise it drops
// the messages of a non-persistent topic, and those of a topic that has only non-durable subscriptions.
func (b *Broker) AwaitPermits(topic string) {
	require.Eventually(b.T, func() bool {
		var stats struct {
			Subscriptions map[string]struct {
				Consumers []struct{ AvailablePermits int }
			}
		}
		// The topic may be deleted.
		_ = admin.Call(context.Background(), b.AdminURL, "GET", topic+"/stats", nil, &stats)
		for _, c := range stats.Subscriptions[Subscription].Consumers {
			if c.AvailablePermits > 0 {
				return true
			}
		}
		return false
	}, Patience, 5*time.Millisecond)
}

// Shadow makes a shadow topic (PIP-180) of source, and returns its name. Its messages have the ids of the source's
// messages.
func (b *Broker) Shadow(source string) string {
	name := source + "-shadow"
	b.Admin("PUT", name, "", map[string]string{"PULSAR.SHADOW_SOURCE": source}, nil)
	b.Admin("PUT", source, "/shadowTopics", []string{name}, nil)
	require.Eventually(b.T, func() bool { // the shadow gets only messages that are published after it is attached
		var stats struct{ Cursors map[string]any }
		b.Admin("GET", source, "/internalStats", nil, &stats)
		return len(stats.Cursors) > 0
	}, Patience, 20*time.Millisecond)
	return name
}

// Admin calls the admin API for a topic, or for "namespaces/…". The test fails if the call does. Admin decodes the
// response into answer unless answer is nil.
func (b *Broker) Admin(method, topic, path string, body, answer any) {
	b.T.Helper()
	require.NoError(b.T, admin.Call(context.Background(), b.AdminURL, method, topic+path, body, answer))
}

// Unload closes a topic at the broker, so that all its clients reconnect.
func (b *Broker) Unload(topic string) { b.Admin("PUT", topic, "/unload", nil, nil) }

// SubscriptionStats are the broker's statistics of the tests' subscription.
type SubscriptionStats struct {
	Backlog int `json:"msgBacklog"`
	Unacked int `json:"unackedMessages"`
	Out     int `json:"msgOutCounter"`
}

// Subscription is the name of the tests' subscription.
const Subscription = "sub"

// PartitionsOf returns the names of a topic's partitions, or the topic's own name if partitions is 0.
func PartitionsOf(topic string, partitions int) (topics []string) {
	if partitions == 0 {
		return []string{topic}
	}
	for p := range partitions {
		topics = append(topics, fmt.Sprintf("%s-partition-%d", topic, p))
	}
	return topics
}

// Stats returns the statistics of a topic, summed over its partitions; partitions is 0 for an unpartitioned topic.
func (b *Broker) Stats(topic string, partitions int) (sum SubscriptionStats) {
	for _, t := range PartitionsOf(topic, partitions) {
		var stats struct{ Subscriptions map[string]SubscriptionStats }
		b.Admin("GET", t, "/stats", nil, &stats)
		s := stats.Subscriptions[Subscription]
		sum.Backlog += s.Backlog
		sum.Unacked += s.Unacked
		sum.Out += s.Out
	}
	return sum
}

// Settles checks that all messages of a topic are acknowledged at the broker within Patience; partitions is 0 for an
// unpartitioned topic.
func (b *Broker) Settles(topic string, partitions int) {
	b.T.Helper()
	var s SubscriptionStats
	for end := time.Now().Add(Patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		s = b.Stats(topic, partitions)
		if s.Backlog == 0 { // Unacked may stay too large: see test/compared/upstream.md
			return
		}
	}
	require.FailNow(b.T, "the backlog does not empty", "%+v", s)
}

// Options returns options of a consumer that begins with the oldest message.
func (b *Broker) Options(topic string, kind pulsar.SubscriptionType) pulsar.ConsumerOptions {
	return pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: Subscription, Type: kind,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	}
}

// Subscribe returns a Consumer, which is closed with the test. If the test fails, the Consumer's statistics are logged.
func (b *Broker) Subscribe(opts pulsar.ConsumerOptions, options ...redelivery.Option) *redelivery.Consumer {
	b.T.Helper()
	c, err := b.TrySubscribe(opts, options...)
	require.NoError(b.T, err)
	return c
}

// TrySubscribe is Subscribe for options that may be refused.
func (b *Broker) TrySubscribe(
	opts pulsar.ConsumerOptions, options ...redelivery.Option,
) (*redelivery.Consumer, error) {
	b.T.Helper()
	options = append([]redelivery.Option{redelivery.WithLogger(logtest.Logger(b.T))}, options...)
	c, err := redelivery.Subscribe(b.Client, opts, options...)
	if err != nil {
		return nil, err
	}
	b.T.Cleanup(func() {
		if b.T.Failed() {
			b.T.Logf("%s: %+v", c.Subscription(), c.Stats())
		}
		c.Close()
	})
	if opts.EnableZeroQueueConsumer {
		waittest.ForZeroQueue()
	}
	return c, nil
}

// LogTo makes a Consumer log to w.
func LogTo(w io.Writer) redelivery.Option {
	return redelivery.WithLogger(slog.New(slog.NewTextHandler(w, nil)))
}

// Namespace creates a namespace, and returns the prefix of its topics' names.
func (b *Broker) Namespace() string {
	name := fmt.Sprintf("public/n-%08x", rand.Uint32())
	b.Admin("PUT", "namespaces/"+name, "", nil, nil)
	return "persistent://" + name + "/"
}

// SubscribeEither is SubscribePlain if plain is set, and Subscribe otherwise.
func (b *Broker) SubscribeEither(plain bool, opts pulsar.ConsumerOptions) pulsar.Consumer {
	if plain {
		return b.SubscribePlain(opts)
	}
	return b.Subscribe(opts)
}

// SubscribePlain returns a consumer of pulsar-client-go, which the test closes at its end.
func (b *Broker) SubscribePlain(opts pulsar.ConsumerOptions) pulsar.Consumer {
	b.T.Helper()
	c, err := b.Client.Subscribe(opts)
	require.NoError(b.T, err)
	b.T.Cleanup(c.Close)
	return c
}

// RetryTopic returns the name of a topic's retry topic.
func RetryTopic(topic string) string { return topic + "-" + Subscription + "-RETRY" }

// DeadLetterTopic returns the name of a topic's dead letter topic.
func DeadLetterTopic(topic string) string { return topic + "-" + Subscription + "-DLQ" }

// RetryOptions returns options with a retry topic.
func (b *Broker) RetryOptions(topic string, maxDeliveries uint32) pulsar.ConsumerOptions {
	opts := b.Options(topic, pulsar.Shared)
	opts.RetryEnable = true
	opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: maxDeliveries}
	return opts
}

// SubscribeDeadLetters subscribes to the dead letters of a topic.
func (b *Broker) SubscribeDeadLetters(topic string) pulsar.Consumer {
	c, err := b.Client.Subscribe(b.Options(DeadLetterTopic(topic), pulsar.Exclusive))
	require.NoError(b.T, err)
	b.T.Cleanup(c.Close)
	return c
}

// ReceiveDeadLetter returns the next message of a subscription of a dead letter topic.
func (b *Broker) ReceiveDeadLetter(topic, subscription string) pulsar.Message {
	b.T.Helper()
	c, err := b.Client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: subscription})
	require.NoError(b.T, err)
	defer c.Close()
	return Next(b.T, c, 20*time.Second)
}
