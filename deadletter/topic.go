// Package deadletter looks into a dead letter topic, and replays, exports, purges and imports its messages, called
// letters.
//
//	letters, err := deadletter.Open(client, deadletter.Options{
//		Topic: "persistent://public/default/orders-billing-DLQ",
//		Admin: deadletter.Admin{URL: "http://localhost:8080"},
//	})
//	...
//	report, err := letters.Replay(ctx, deadletter.ReplayOptions{Canary: 10})
//
// It reads dead letters of this library, of plain pulsar-client-go and of the Java client. Replay and Purge acknowledge
// letters on their own durable subscription (default: "redelivery"), and leave other subscriptions alone. Command
// redelivery dlq does all this from a shell; it also lists the dead letter topics of a namespace.
package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/internal/upstream"
)

const defaultSubscription = "redelivery"

// Errors of this package, for errors.Is.
var (
	// ErrNoTopic says that the topic does not exist, and was not created. Without Options.Admin this cannot be checked,
	// and the broker may create the topic.
	ErrNoTopic = errors.New("deadletter: no such topic")
	// ErrNoLetter says that the topic has no such letter, or that it was replayed or purged.
	ErrNoLetter = errors.New("deadletter: no such letter")
	// ErrBusy says that another Replay or Purge of the same subscription is under way.
	ErrBusy = errors.New("deadletter: another replay or purge is under way")
	// ErrUnfinished says that an earlier Replay with other options is not finished. UnfinishedError has the options of
	// the earlier Replay, and ReplayOptions.New begins another Replay.
	ErrUnfinished = errors.New("deadletter: an earlier replay is not finished")
	// ErrNoSubscription says that the target topic has no subscription, so the broker would delete replayed messages
	// unread.
	ErrNoSubscription = errors.New("deadletter: no subscription would get the messages")
	// ErrOtherNamespace says that letters were left out because their namespace is not allowed. The dead letter topic's
	// own namespace and those of ReplayOptions.Namespaces are allowed. The other letters were replayed.
	// Report.Namespaces has the namespaces that are not allowed, each with the number of its letters.
	ErrOtherNamespace = errors.New("deadletter: letters were left out that came from other namespaces")
	// ErrNotSubscribed says that Unsubscribe found no Options.Subscription on the topic.
	ErrNotSubscribed = errors.New("deadletter: not subscribed")
	// ErrNotDeadLetters says that the topic is probably not for dead letters. Nothing was created on it. See
	// Options.AnyTopic.
	ErrNotDeadLetters = errors.New("deadletter: not a dead letter topic")
	// ErrUnopenable says that pulsar-client-go cannot open a topic of this name. The Java client makes such names: a
	// consumer without a retry topic and without DeadLetterPolicy.deadLetterTopic publishes the dead letters of
	// t-partition-1 to t-partition-1-subscription-DLQ.
	ErrUnopenable = errors.New("deadletter: pulsar-client-go cannot open the topic")
	// ErrPoison says that a letter of the canary became a dead letter again.
	ErrPoison = errors.New("deadletter: the canary is dead again")
	// ErrUnprocessed says that the canary was not acknowledged within ReplayOptions.CanaryTimeout.
	ErrUnprocessed = errors.New("deadletter: the canary is not processed")
)

// Options configures a Topic.
type Options struct {
	// Topic is the dead letter topic, with all its partitions. Required.
	Topic string
	// Subscription is the durable subscription that Replay and Purge use. A call creates it at the earliest stored
	// letter, and must be its only consumer. Default: "redelivery".
	Subscription string
	// AnyTopic lets Replay, Purge and Import use a topic that does not look like a dead letter topic. A topic looks
	// like one if its name ends in -DLQ, or if one of its first 100 messages says where it came from or why it died. A
	// topic whose name ends in -RETRY does not. On an application's topic, Subscription would make the broker store
	// every message. Default: false; then the calls return ErrNotDeadLetters for such a topic.
	AnyTopic bool
	// Admin is the broker's admin API. Default: none. Without it, letters with a schema are not replayed, a canary is
	// an error, and Peek, Groups and Export see all letters that the topic stores, replayed or not.
	Admin Admin
	// Decryption decrypts encrypted letters. Default: none. Without it, encrypted letters are not replayed.
	Decryption *pulsar.MessageDecryptionInfo
}

// Admin is a broker's admin REST API.
type Admin struct {
	// URL is its address, such as http://localhost:8080.
	URL string
	// Client makes the requests, with authentication and TLS if the API needs them. Default: http.DefaultClient.
	Client *http.Client
}

func (a Admin) call(ctx context.Context, path string, answer any) error {
	return admin.API(a).Call(ctx, http.MethodGet, path, nil, answer)
}

// Topic is a dead letter topic. It keeps no connection between calls, so there is nothing to close. It is safe for
// concurrent use.
type Topic struct {
	client  pulsar.Client
	o       Options
	schemas *admin.Schemas
	quiet   time.Duration // after this time without a letter, a call considers the letters complete
}

// Open returns the dead letter topic that o names. It does not connect: an error says which option is wrong. If there
// is no such topic, the first call returns an error. Without an admin API, a broker that creates topics on use creates
// the topic instead.
func Open(client pulsar.Client, o Options) (*Topic, error) {
	if client == nil {
		return nil, errors.New("deadletter: client is nil")
	}
	if o.Topic == "" {
		return nil, errors.New(`deadletter: Options.Topic is "", want the dead letter topic's name`)
	}
	if want := topicname.Want(o.Topic); want != "" {
		return nil, fmt.Errorf("deadletter: Options.Topic is %q, want %s", o.Topic, want)
	}
	if want := admin.WantURL(o.Admin.URL); want != "" && o.Admin.URL != "" {
		return nil, fmt.Errorf("deadletter: Options.Admin.URL is %q, want %s", o.Admin.URL, want)
	}
	o.Topic = topicname.Full(o.Topic)
	switch domain, _, _ := strings.Cut(o.Topic, "://"); {
	case domain != "persistent":
		return nil, fmt.Errorf("deadletter: Options.Topic is %q, want a persistent topic", o.Topic)
	case topicname.Base(o.Topic) != o.Topic:
		return nil, fmt.Errorf("deadletter: Options.Topic is %q, want all partitions: %s", o.Topic,
			topicname.Base(o.Topic))
	}
	if strings.Contains(o.Topic, "-partition-") {
		return nil, fmt.Errorf(`%w: pulsar-client-go reads the text after "-partition-" in %s as a number; set `+
			`deadLetterTopic in the Java consumer's DeadLetterPolicy for future letters, and read these with Java`,
			ErrUnopenable, o.Topic)
	}
	o.Subscription = cmp.Or(o.Subscription, defaultSubscription)
	// With this, upstream returns a letter that it cannot decrypt. By default it would request the letter again and
	// again.
	decryption := pulsar.MessageDecryptionInfo{}
	if o.Decryption != nil {
		decryption = *o.Decryption
	}
	decryption.ConsumerCryptoFailureAction = crypto.ConsumerCryptoFailureActionConsume
	t := &Topic{client: client, o: o, quiet: 2 * time.Second,
		schemas: &admin.Schemas{API: admin.API(o.Admin), Topic: o.Topic}}
	t.o.Decryption = &decryption
	return t, nil
}

// namespace returns the tenant and namespace of a full name.
func namespace(topic string) string {
	_, rest, _ := strings.Cut(topic, "://")
	return rest[:max(strings.LastIndex(rest, "/"), 0)]
}

// subscriptions returns the subscriptions of a topic, without that of compaction, or none without an admin API.
func (t *Topic) subscriptions(ctx context.Context, topic string) ([]string, error) {
	if t.o.Admin.URL == "" {
		return nil, nil
	}
	var names []string
	err := t.o.Admin.call(ctx, admin.Topic(topic)+"/subscriptions", &names)
	if admin.NotFound(err) {
		return nil, fmt.Errorf("%w: %s", ErrNoTopic, topic)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == admin.Compaction })
	slices.Sort(names)
	return names, err
}

// consumers returns how many consumers each subscription of a topic has on all partitions together, or nil if the admin
// API does not return that.
func (t *Topic) consumers(ctx context.Context, topic string) map[string]int {
	if t.o.Admin.URL == "" {
		return nil
	}
	var metadata struct{ Partitions int }
	var stats struct {
		Subscriptions map[string]struct {
			Consumers []struct{ ConsumerName string }
		}
	}
	if t.o.Admin.call(ctx, admin.Topic(topic)+"/partitions", &metadata) != nil {
		return nil
	}
	path := "/stats"
	if metadata.Partitions > 0 {
		path = "/partitioned-stats?perPartition=false"
	}
	if t.o.Admin.call(ctx, admin.Topic(topic)+path, &stats) != nil {
		return nil
	}
	all := map[string]int{}
	for name, s := range stats.Subscriptions {
		names := map[string]bool{} // a consumer is listed with each of its partitions
		for _, c := range s.Consumers {
			names[c.ConsumerName] = true
		}
		all[name] = len(names)
	}
	return all
}

// partitions returns the partitions of a topic, or only the topic itself if it is not partitioned. The broker may
// create a topic when a client asks for partitions, so partitions first asks the admin API, if there is one, whether
// the topic exists.
func (t *Topic) partitions(ctx context.Context, topic string) ([]string, error) {
	if _, err := t.subscriptions(ctx, topic); err != nil {
		return nil, err
	}
	return upstream.Within(ctx, func() ([]string, error) { return t.client.TopicPartitions(topic) }, nil)
}

// insist calls create again while the broker says that the name is in use, since it may not have noticed yet that the
// previous user has crashed.
func insist[T any](ctx context.Context, patience time.Duration, create func() (T, error), drop func(T)) (T, error) {
	for begin := time.Now(); ; {
		made, err := upstream.Within(ctx, create, drop)
		if err == nil || !isBusy(err) || time.Since(begin) > patience {
			return made, err
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return made, err
		}
	}
}

func isBusy(err error) bool {
	text := err.Error()
	return strings.Contains(text, "ConsumerBusy") || strings.Contains(text, "ProducerBusy")
}
