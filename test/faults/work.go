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
	mixedApp app = ""         // fails on some messages, in all ways, and finally acknowledges them
	failing  app = "failing"  // nacks each message until it is a dead letter
	poisoned app = "poisoned" // a Worker with a crash limit; one message ends its process
	// the README's service: a Worker; one message in ten fails twice, one in a hundred always
	service app = "service"
	// a Worker; some messages of each key fail, and sometimes all messages of a key fail for three seconds
	byKey app = "by key"
)

// work describes what the consumers do.
type work struct {
	App             app
	URL, Topic      string
	Type            pulsar.SubscriptionType
	Messages        int
	Processes       int           // consumers in processes of their own; 0 for one in this process
	Min             time.Duration // of the backoff, whose Max is ten times as long
	Queue           int           // ReceiverQueueSize; 0 for the default
	AckWithResponse bool
	NackAll         bool      // every message fails once, by a nack; otherwise some fail up to three times, in all ways
	Ordered         bool      // app byKey: with key order
	Healed          time.Time // app byKey: no message fails after this time
	Reconsume       bool      // some messages go through the retry topic
	Partitions      int       // 0 for an unpartitioned topic; message n is in partition n%Partitions
	Chan            bool      // use Chan in place of Receive
	Wrap            bool      // the application wraps messages in its own type
	Log             bool      // use a log of attempts, with a client of its own for LogURL
	Durable         bool      // the checker expects what the log promises
	MaxDeliveries   int       // 0 without dead letters
	LogURL, Token   string    // Token authenticates the consumer at a guarded broker
	Dir, Name       string    // the history's folder, and the consumer's name in the history
	Plain           bool      // plain pulsar-client-go, for comparison
	Alone           bool      // the message that ends processes comes when all others are handled
	WholeBatches    bool      // no batch-index acknowledgements
	// one goroutine acknowledges every tenth message cumulatively; no message fails
	Cumulative bool
}

// topics returns the topic's partitions, or the topic itself if it has none.
func (w work) topics() []string {
	names := []string{w.Topic}
	for i := range w.Partitions {
		names = append(names[:i], fmt.Sprintf("%s-partition-%d", w.Topic, i))
	}
	return names
}

// partition returns the partition of message n.
func (w work) partition(n int) int {
	if w.App == byKey {
		n %= keys
	}
	return n % w.stride()
}

// stride is the difference between the numbers of successive messages of a partition.
func (w work) stride() int { return max(1, w.Partitions) }

const (
	subscription   = "chaos"
	ackTimeout     = 3 * time.Second
	reconsumeDelay = 2 * time.Second
	keepAlive      = 5 * time.Second
	// how long ackEveryTenth handles each message, so that it still has work during the fault
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
		// Without index acks a batch goes from one process to another until one of them has acknowledged all of it.
		// This takes minutes. The app service uses the default of Subscribe.
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
