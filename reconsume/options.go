package reconsume

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/durations"
	"github.com/pulsar-redelivery/redelivery/internal/policies"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

const (
	// Unlimited is the value of Options.MaxDeliveries that sets no limit on how often a message is reconsumed. With
	// delay levels the last level repeats, as PIP-94 proposes. DeadLetter still publishes dead letters.
	Unlimited = math.MaxUint32
)

// Options configures a Reconsumer. Fields that pulsar.DLQPolicy also has are named as there. One means something else:
// Options.MaxDeliveries limits reconsumes (like redelivery.DeadLetterPolicy.MaxReconsumes), but DLQPolicy.MaxDeliveries
// limits deliveries. A topic name without a namespace, such as orders-DLQ, is in the namespace of Topic, or in
// public/default without Topic; in DLQPolicy it is always in public/default.
type Options struct {
	// Topic is the topic that the messages come from, or the first one if there are several. Its name is part of the
	// dead letter producer's name and, without -partition-N, of the default topics' names. Required, unless
	// RetryLetterTopic and DeadLetterTopic are set.
	Topic string
	// Subscription is the subscription that the messages come from. Required.
	Subscription string
	// NonDurable says that the subscription is not durable. Then the retry topic is created without the subscription: a
	// subscription made with a topic is durable, and the consumer could not use it. Default: false.
	NonDurable bool
	// ConsumerName is part of the dead letter producer's name. Default: five random letters.
	ConsumerName string

	// RetryLetterTopic is where retries go. Default: <Topic>-<Subscription>-RETRY.
	RetryLetterTopic string
	// DeadLetterTopic is where dead letters go. Default: <Topic>-<Subscription>-DLQ.
	DeadLetterTopic string
	// MaxDeliveries is how often a message is reconsumed before it becomes a dead letter; Unlimited sets no limit.
	// Default: 16.
	MaxDeliveries uint32
	// Backoff gives the delay of Later. The redelivery count that it gets is how often the message was reconsumed
	// before. Default: backoff.DefaultDelayLevels.
	Backoff backoff.RedeliveryBackoff

	// ProducerOptions are for the producers of both topics; Name is for the producer of retries only. Topic and Schema
	// are replaced. Retries without a delay are batched by key (BatcherBuilderType is always KeyBasedBatchBuilder), so
	// that a Key_Shared consumer gets only its own keys. Dead letters are published one per batch, unless you set a
	// batching option here. pulsar-client-go writes no ordering key on a batch, so messages that have an ordering key
	// are not batched, except dead letters if there is a Schema. Messages of more than 1 MiB, properties included, and
	// empty ones without encryption have producers of their own, with chunking and without batching and compression. If
	// ProducerAccessMode allows only one producer, that one publishes all messages; then only one of several replicas
	// can publish, and a warning is logged. With Encryption, pulsar-client-go returns an empty payload as ciphertext
	// unless the message was in a batch. So an empty delayed retry arrives as ciphertext, and so does an empty dead
	// letter with DisableBatching. Default: LZ4 compression.
	ProducerOptions pulsar.ProducerOptions
	// DeadLetterTopicProducerName is the dead letter producer's name. Only one producer at a time may have it. A second
	// one, for example in another replica of a service, gets the name with a suffix, and a warning is logged. The same
	// holds for ProducerOptions.Name. Default: <Topic>-<Subscription>-<ConsumerName>-<five random letters>-DLQ.
	DeadLetterTopicProducerName string
	// InitialSubscriptionName is a durable subscription of the dead letter topic. The broker creates it before the
	// first dead letter, so that none is deleted unread. The subscription keeps the dead letters until a consumer
	// acknowledges them or removes the subscription. Default: none.
	InitialSubscriptionName string
	// Schema is the consumer's schema. Default: none.
	Schema pulsar.Schema
	// Decrypts says that the consumer decrypts its messages. New then requires ProducerOptions.Encryption with a key,
	// so that no plain text leaks. Default: false.
	Decrypts bool
	// OmitCause leaves EXCEPTION_MESSAGE out of retries and dead letters, but not EXCEPTION_TYPE. Custom properties are
	// kept. Default: false.
	OmitCause bool
	// Logger is where warnings go. Default: slog.Default().
	Logger *slog.Logger
	// OperationTimeout limits a call whose context has no deadline, and an attempt to create a producer. Default: 30s.
	OperationTimeout time.Duration
}

func (o Options) withDefaults() (Options, error) {
	if o.Subscription == "" {
		return o, errors.New(`reconsume: Options.Subscription is "", want the subscription's name`)
	}
	if o.Topic == "" && (o.RetryLetterTopic == "" || o.DeadLetterTopic == "") {
		return o, errors.New(`reconsume: Options.Topic is "", want the topic's name, or RetryLetterTopic ` +
			"and DeadLetterTopic")
	}
	if e := o.ProducerOptions.Encryption; o.Decrypts && (e == nil || len(e.Keys) == 0) {
		return o, errors.New("reconsume: Options.Decrypts is true without ProducerOptions.Encryption, want it with " +
			"a key: retries and dead letters would be plain text")
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.RetryLetterTopic = topicname.In(o.Topic,
		cmp.Or(o.RetryLetterTopic, topicname.Retry(o.Topic, o.Subscription)))
	o.DeadLetterTopic = topicname.In(o.Topic,
		cmp.Or(o.DeadLetterTopic, topicname.DeadLetter(o.Topic, o.Subscription)))
	for name, topic := range map[string]string{"RetryLetterTopic": o.RetryLetterTopic,
		"DeadLetterTopic": o.DeadLetterTopic} {
		if !topicname.IsPersistent(topic) {
			return o, fmt.Errorf("reconsume: Options.%s is %s, want a persistent topic", name, topic)
		}
	}
	if n := o.ProducerOptions.MaxPendingMessages; n < 0 {
		return o, fmt.Errorf("reconsume: Options.ProducerOptions.MaxPendingMessages is %d, want 0 or more", n)
	}
	if o.InitialSubscriptionName != "" && !publishing.InitialSubscription(&pulsar.ProducerOptions{}, "") {
		return o, fmt.Errorf("reconsume: Options.InitialSubscriptionName is %q, want none with this version of "+
			"pulsar-client-go", o.InitialSubscriptionName)
	}
	if mode, exclusive := exclusiveModes[o.ProducerOptions.ProducerAccessMode]; exclusive {
		o.Logger.Warn("reconsume: the access mode allows only one producer of a topic at a time: only one replica can "+
			"publish retries and dead letters, and messages of the other replicas wait; use "+
			"ProducerAccessModeShared", "mode", mode,
			"retry_topic", o.RetryLetterTopic, "dead_letter_topic", o.DeadLetterTopic)
	}
	o.MaxDeliveries = cmp.Or(o.MaxDeliveries, publishing.MaxReconsumes)
	o.OperationTimeout = cmp.Or(o.OperationTimeout, 30*time.Second)
	if o.Backoff == nil {
		o.Backoff, _ = backoff.ParseDelayLevels(backoff.DefaultDelayLevels)
	}
	if err := policies.Validate(o.Backoff); err != nil {
		return o, fmt.Errorf("reconsume: Options.Backoff: %w", err)
	}
	if want := durations.Wanted(o.OperationTimeout, true); want != "" {
		return o, fmt.Errorf("reconsume: Options.OperationTimeout is %v, want %s", o.OperationTimeout, want)
	}
	return o, nil
}

// exclusiveModes are the access modes in which one producer at a time may publish to a topic.
var exclusiveModes = map[pulsar.ProducerAccessMode]string{pulsar.ProducerAccessModeExclusive: "Exclusive",
	pulsar.ProducerAccessModeWaitForExclusive: "WaitForExclusive"}

// retryProducer returns the options of one new producer. If the retry topic was deleted, the broker creates the
// consumer's subscription together with the new topic. Without the subscription, the broker would delete messages that
// are published before the consumer has subscribed again.
func (o *Options) retryProducer() pulsar.ProducerOptions {
	p := o.ProducerOptions
	p.Topic, p.Schema, p.DisableMultiSchema = o.RetryLetterTopic, o.Schema, false
	// the default builder mixes keys in a batch, and the broker chooses a Key_Shared consumer by only one key
	p.BatcherBuilderType = pulsar.KeyBasedBatchBuilder
	if p.CompressionType == pulsar.NoCompression {
		p.CompressionType = pulsar.LZ4
	}
	if p.Encryption != nil { // upstream changes the struct that it gets
		e := *p.Encryption
		p.Encryption = &e
	}
	if !o.NonDurable {
		publishing.InitialSubscription(&p, o.Subscription)
	}
	return p
}

// deadLetterProducer returns the options of one new producer of dead letters. If the application configures no name,
// each producer has a new one. If ProducerOptions configures no batches, each letter is in a batch of its own: a plain
// consumer that nacks a letter gets the letter's whole batch again, and without a batch a letter would lose the version
// of its schema.
func (o *Options) deadLetterProducer(topic string) pulsar.ProducerOptions {
	p := o.retryProducer()
	p.Topic = topic
	if b := o.ProducerOptions; b.BatchingMaxMessages == 0 && b.BatchingMaxSize == 0 && b.BatchingMaxPublishDelay == 0 &&
		b.BatcherBuilderType == pulsar.DefaultBatchBuilder {
		// the default builder takes half the time of the builder by key
		p.BatchingMaxMessages, p.BatcherBuilderType = 1, pulsar.DefaultBatchBuilder
	}
	p.Name = cmp.Or(o.DeadLetterTopicProducerName,
		strings.Join([]string{o.Topic, o.Subscription, cmp.Or(o.ConsumerName, letters()), letters(), "DLQ"}, "-"))
	publishing.InitialSubscription(&p, o.InitialSubscriptionName)
	return p
}

// single returns options without batches, so that a message that is too large can be in chunks, and without
// compression. Outside of a batch, upstream would compress an empty payload to one byte.
func single(options func() pulsar.ProducerOptions) func() pulsar.ProducerOptions {
	return unnamed(func() pulsar.ProducerOptions {
		p := options()
		p.DisableBatching, p.EnableChunking, p.CompressionType = true, true, pulsar.NoCompression
		if p.Encryption != nil && p.ChunkMaxMessageSize == 0 {
			p.ChunkMaxMessageSize = publishing.SealedChunk
		}
		return p
	})
}

// unnamed returns the options without the name, which only one producer at a time may have.
func unnamed(options func() pulsar.ProducerOptions) func() pulsar.ProducerOptions {
	return func() pulsar.ProducerOptions {
		p := options()
		p.Name = ""
		return p
	}
}

// letters returns five random letters, like the names that upstream gives to consumers.
func letters() string {
	name := make([]byte, 5)
	for i := range name {
		name[i] = byte('a' + rand.IntN(26))
	}
	return string(name)
}

// LaterOption configures one retry: WithCause, WithCallback.
type LaterOption func(*retry)

// retry is how a message is reconsumed.
type retry = publishing.Retry

// WithCause (default: none) is the error that the message failed with. The retry carries it in EXCEPTION_MESSAGE and
// EXCEPTION_TYPE, which may also be set as custom properties. The dead letter after too many retries carries it too,
// unless a later error replaces it.
func WithCause(err error) LaterOption {
	return func(r *retry) { r.Cause = err }
}

// WithCallback (default: none, so that the call waits) lets the call return as soon as the message is on its way. done
// is called once with the outcome, by a goroutine of its own. If the call returns an error, done is not called.
// Messages are published in the order of the calls. While ProducerOptions.MaxPendingMessages messages (default: 1000)
// have no answer, a call waits, at most until its context ends. A call also waits while the broker has not answered a
// message that is larger than 4 KiB and than any before, or has a longer delay than any before. The call of such a
// message waits until all messages before it have an answer.
func WithCallback(done func(error)) LaterOption {
	return func(r *retry) { r.Callback = done }
}

// with applies options.
func with(how retry, options []LaterOption) retry {
	for _, option := range options {
		if option != nil {
			option(&how)
		}
	}
	return how
}
