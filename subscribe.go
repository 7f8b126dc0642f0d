package redelivery

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/upstream"
)

// Subscribe subscribes with opts and returns a Consumer that redelivers by policy. Without options, the policy is that
// of opts, for instance the delay of NackRedeliveryDelay; but no message comes early, and redeliveries are counted on
// every subscription type. Subscribe does not change opts or anything that they point to. docs/migration.md lists the
// differences from a consumer of client.Subscribe.
//
// NackRedeliveryDelay, NackBackoffPolicy and EnableDefaultNackBackoffPolicy of opts mean the same as the options of
// this package. EnableBatchIndexAcknowledgment is switched on, so that a restart does not repeat finished messages of
// unfinished batches: see WithoutBatchIndexAcks. RetryEnable without DLQ means dead letters after 16 deliveries, as in
// pulsar-client-go; with WithReconsumeBackoff there are none. The broker cannot redeliver messages of non-persistent
// topics: they pass through, and Subscribe logs a warning. An error is pulsar-client-go's own, with the topic and the
// subscription before it, or satisfies errors.Is(err, ErrInvalidOption), or says that client is nil or that the log of
// attempts cannot be read.
func Subscribe(client pulsar.Client, opts pulsar.ConsumerOptions, options ...Option) (*Consumer, error) {
	if client == nil {
		return nil, errors.New("redelivery: client is nil, want a pulsar.Client")
	}
	subscribe := func(prepared pulsar.ConsumerOptions) (pulsar.Consumer, error) {
		inner, err := client.Subscribe(prepared)
		return inner, subscribeError(err, opts, append(topicsOf(opts), opts.TopicsPattern)...)
	}
	return newSubscribed(client, subscribe, opts, options)
}

// SubscribeWith is Subscribe where other code subscribes: it calls subscribe with options made from opts, once, and
// again after each GiveBack and for a Seek with a retry topic. It drives the consumer that subscribe returns. subscribe
// may add to the options, and may wrap the consumer if the wrapper's Chan returns the consumer's own channel. It must
// not change MessageChannel, Interceptors, EventListener, BackOffPolicyFunc, Decryption, DLQ, RetryEnable,
// NackRedeliveryDelay or NackPrecisionBit: messages would come late, or go to another consumer. Nor must it change
// EnableBatchIndexAcknowledgment, or the broker may hear nothing of a batch before its last message is acknowledged:
// set that field in opts, or use WithoutBatchIndexAcks.
//
// For retries, dead letters and the number of partitions (see WithRedeliveryResolution) it needs a client: WithClient.
// Without WithClient or WithReconsumer, RetryEnable and DLQ of opts are an error, as is every option that publishes.
// The error of subscribe is returned unchanged. If subscribe returns a consumer that was not made with these options,
// SubscribeWith closes it and returns an error. A panic of subscribe reaches the caller of SubscribeWith. After
// GiveBack, a goroutine of the Consumer calls subscribe: an error is logged, and subscribe is called again; a panic is
// not recovered.
func SubscribeWith(subscribe func(pulsar.ConsumerOptions) (pulsar.Consumer, error), opts pulsar.ConsumerOptions,
	options ...Option) (*Consumer, error) {
	if subscribe == nil {
		return nil, errors.New("redelivery: subscribe is nil, want a function such as client.Subscribe")
	}
	return newSubscribed(nil, subscribe, opts, options)
}

// newSubscribed calls subscribe, and makes a Consumer that drives the result. client publishes, unless an option names
// another client.
func newSubscribed(client pulsar.Client, subscribe func(pulsar.ConsumerOptions) (pulsar.Consumer, error),
	opts pulsar.ConsumerOptions, options []Option) (*Consumer, error) {
	s, err := newSettings(client, options)
	if err != nil {
		return nil, err
	}
	if err := s.prepare(opts); err != nil {
		return nil, err
	}
	c, err := newConsumer(s)
	if err != nil {
		return nil, err
	}
	prepared := c.hooks.Options(s.opts, s.plan())
	subscribeAgain := func() (pulsar.Consumer, error) {
		// after GiveBack the closed consumer may still write to its own channel
		prepared.MessageChannel = make(chan pulsar.ConsumerMessage, cap(prepared.MessageChannel))
		inner, err := subscribe(prepared)
		if err == nil {
			err = checkSubscribed(inner, prepared)
		}
		return inner, err
	}
	inner, err := subscribeAgain()
	if err != nil {
		c.abandon()
		return nil, err
	}
	prepared.Name = inner.Name()
	if opts.SubscriptionMode == pulsar.Durable && !opts.EnableZeroQueueConsumer {
		c.inner.subscribeAgain = subscribeAgain
		c.setSubscribeMain(subscribe, opts, prepared.Decryption)
	}
	s.warnOfFindings()
	c.begin(inner)
	return c, nil
}

// setSubscribeMain sets the function with which Seek subscribes to the main topic, if there is only one.
func (c *Consumer) setSubscribeMain(subscribe func(pulsar.ConsumerOptions) (pulsar.Consumer, error),
	main pulsar.ConsumerOptions, decryption *pulsar.MessageDecryptionInfo) {
	topics := topicsOf(main)
	if len(topics) != 1 {
		return
	}
	main.Topic, main.Topics, main.RetryEnable, main.DLQ = topics[0], nil, false, nil
	main.MessageChannel, main.Interceptors, main.EventListener = nil, nil, nil
	main.Decryption = decryption // pulsar-client-go fills it in, and main has the caller's
	main.ReceiverQueueSize = 1
	main.StartMessageIDInclusive = true // otherwise a reconnection acknowledges the message that Seek names
	c.inner.subscribeMain = func() (pulsar.Consumer, error) { return subscribe(main) }
}

// subscribeError adds the topics and the subscription to an error of upstream's, which says no more than
// "TopicNotFound" or "ConsumerBusy". A *pulsar.Error is about the options; subscribeError returns it unchanged, since
// programs assert its type.
func subscribeError(err error, opts pulsar.ConsumerOptions, topics ...string) error {
	if _, ofOptions := err.(*pulsar.Error); ofOptions || err == nil { //nolint:errorlint // a wrapped one says more
		return err
	}
	names := strings.Join(slices.DeleteFunc(topics, func(topic string) bool { return topic == "" }), ", ")
	if strings.Contains(err.Error(), "TopicMigrated") || strings.Contains(names, "topic://") {
		return fmt.Errorf("redelivery: subscribing %q to %s: a scalable topic of Pulsar 5, which pulsar-client-go "+
			"cannot read; use a client for Pulsar 5, or a persistent topic: %w", opts.SubscriptionName, names, err)
	}
	return fmt.Errorf("redelivery: subscribing %q to %s: %w", opts.SubscriptionName, names, err)
}

// checkSubscribed closes a consumer that was not subscribed with opts, and returns an error.
func checkSubscribed(consumer pulsar.Consumer, opts pulsar.ConsumerOptions) error {
	const want = "a consumer that was subscribed with the given options"
	switch c := consumer.(type) {
	case nil:
		return invalid("SubscribeWith: the result of subscribe", "nil", want)
	case *Consumer: // which would delay twice
		c.Close()
		return invalid("SubscribeWith: the result of subscribe", "a *redelivery.Consumer", want)
	}
	if !opts.EnableZeroQueueConsumer &&
		upstream.Chan(consumer) != (<-chan pulsar.ConsumerMessage)(opts.MessageChannel) {
		consumer.Close()
		return invalid("SubscribeWith: the result of subscribe", fmt.Sprintf("another %T", consumer), want)
	}
	return nil
}

// Wrap takes over consumer and returns a Consumer that redelivers by policy. From then on, do not use consumer
// directly. Close of the returned Consumer closes it.
//
// Wrap knows neither the options of consumer nor when consumer loses a connection. So nacked messages wait in memory;
// those that do not fit the memory limit come late, by up to 4/3 of consumer's own NackRedeliveryDelay. Wrap logs this
// at Info, and the first such message at Warn. After a lost connection, or on Failover when another consumer becomes
// active, two consumers of the subscription may both handle a message that waited. SubscribeWith has neither limit.
// Messages of non-persistent topics pass through, since the broker cannot redeliver them.
//
// Messages that the application received from consumer before Wrap can be acknowledged with the Consumer. If one of
// them is nacked, it waits for the delay of the policy, and then for consumer's own NackRedeliveryDelay. They have no
// ack timeout, and InProgress, DeadLetter and the ReconsumeLater methods return ErrNotInFlight. A message that was
// nacked before Wrap keeps its delay.
//
// WithClient adds dead letters, and also retries if consumer is subscribed to its retry topic, for instance by
// RetryEnable. Wrap does not subscribe to it. To name both topics, Wrap asks the broker for the topic of consumer; if
// there are several, set Topic of WithDeadLetterPolicy.
//
// Wrap refuses a *Consumer, WithRedeliveryResolution, and options for retries if consumer is not subscribed to its
// retry topic. Such an error satisfies errors.Is(err, ErrInvalidOption). After an error consumer is still open, and
// still belongs to the caller.
func Wrap(consumer pulsar.Consumer, options ...Option) (*Consumer, error) {
	if consumer == nil {
		return nil, errors.New("redelivery: consumer is nil, want a pulsar.Consumer")
	}
	if _, ok := consumer.(*Consumer); ok { // which would delay twice
		return nil, invalid("Wrap's consumer", "a *redelivery.Consumer",
			"one of client.Subscribe: two Consumers would delay a message twice")
	}
	s, err := newSettings(nil, options)
	if err != nil {
		return nil, err
	}
	if err := s.prepareWrapped(consumer); err != nil {
		return nil, err
	}
	c, err := newConsumer(s)
	if err != nil {
		return nil, err
	}
	c.begin(consumer)
	return c, nil
}

func newSettings(client pulsar.Client, options []Option) (*settings, error) {
	s := &settings{client: client, logger: slog.Default()}
	s.MemoryLimit, s.Source = DefaultMemoryLimit, FromAuto
	for i, option := range options {
		if option == nil {
			return nil, invalid(fmt.Sprintf("option %d", i+1), "nil", "an Option")
		}
		if err := option(s); err != nil {
			return nil, err
		}
	}
	s.subscriber = cmp.Or(client, s.client)
	return s, nil
}
