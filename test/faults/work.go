package main

import (
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
)

// app is a kind of application.
type app string

const (
	mixedApp app = ""         // fails on some messages in all ways, and acknowledges them in the end
	failing  app = "failing"  // nacks each message until it is a dead letter
	poisoned app = "poisoned" // a Worker with a crash limit; one message ends its process
	// the README's service: a Worker, of which one message in ten fails twice and one in a hundred always
	service app = "service"
	// a Worker, of which some messages of each key fail, and each key fails for three seconds now and then
	byKey app = "by key"
)

// work describes the task of the consumers.
type work struct {
	App             app
	URL, Topic      string
	Type            pulsar.SubscriptionType
	Messages        int
	Processes       int           // consumers in processes of their own; 0 for one in this process
	Min             time.Duration // of the backoff; Max is ten times as much
	Queue           int           // ReceiverQueueSize; 0 for the default
	AckWithResponse bool
	NackAll         bool      // every message fails once, by a nack; else some in every way there is, up to three times
	Ordered         bool      // of the app of keys: with key order
	Healed          time.Time // of the app of keys: no key fails from then on
	Reconsume       bool      // some go through the retry topic
	Partitions      int       // 0 for a topic without; message n is in partition n%Partitions
	Chan            bool      // from Chan in place of Receive
	Wrap            bool      // the handler has messages of its own
	Log             bool      // there is a log of attempts, with a client of its own by LogURL
	Durable         bool      // the checker expects what the log promises
	MaxDeliveries   int       // 0 without dead letters
	LogURL, Token   string    // Token says who the consumer is, if the broker asks
	Dir, Name       string    // of the history, and of the consumer in it
	Plain           bool      // with plain pulsar-client-go, beside which to see this library
	Alone           bool      // the poison comes when all others are handled
	WholeBatches    bool      // no batch-index acknowledgements
	// one goroutine, of which no message fails, acknowledges every tenth with what is before it
	Cumulative bool
}

// topics are the topic's partitions, or the topic that has none.
func (w work) topics() []string {
	names := []string{w.Topic}
	for i := range w.Partitions {
		names = append(names[:i], fmt.Sprintf("%s-partition-%d", w.Topic, i))
	}
	return names
}

// partition is where a message goes.
func (w work) partition(n int) int {
	if w.App == byKey {
		n %= keys
	}
	return n % w.apart()
}

// apart is how far the numbers of a partition's messages are apart.
func (w work) apart() int { return max(1, w.Partitions) }

const (
	subscription   = "chaos"
	ackTimeout     = 3 * time.Second
	reconsumeDelay = 2 * time.Second
	keepAlive      = 5 * time.Second
	// of each message that cannot fail, so that there is work while the fault is made
	pace = 10 * time.Millisecond
)

func (w work) policy() backoff.RedeliveryBackoff {
	return backoff.Exponential{Min: w.Min, Max: 10 * w.Min, Multiplier: 2}
}

func (w work) options() (pulsar.ConsumerOptions, []redelivery.Option) {
	opts := pulsar.ConsumerOptions{
		Topic: w.Topic, SubscriptionName: subscription, Type: w.Type, ReceiverQueueSize: w.Queue,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest, AckWithResponse: w.AckWithResponse,
		RetryEnable: w.Reconsume,
		// Else a batch goes from one to the other until one of them has acknowledged all of it, which takes minutes.
		// The service leaves it to Subscribe, which does not rely on a broker that may not keep them.
		EnableBatchIndexAcknowledgment: w.Processes > 0 && (w.App != service || w.Plain) && !w.WholeBatches,
	}
	if w.Reconsume {
		opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 1000}
	}
	options := []redelivery.Option{redelivery.WithNackRedeliveryBackoff(w.policy()), redelivery.WithLogger(quiet)}
	if w.MaxDeliveries > 0 {
		policy := redelivery.DeadLetterPolicy{MaxDeliveries: uint32(w.MaxDeliveries)}
		options = append(options, redelivery.WithDeadLetterPolicy(policy))
	}
	if w.WholeBatches {
		options = append(options, redelivery.WithoutBatchIndexAcks())
	}
	if w.App == mixedApp && !w.NackAll && !w.Cumulative {
		options = append(options, redelivery.WithAckTimeout(ackTimeout),
			redelivery.WithAckTimeoutRedeliveryBackoff(w.policy()))
	}
	return opts, options
}
