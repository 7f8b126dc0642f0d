package redelivery

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Subscribe subscribes with opts and returns a Consumer that redelivers by policy. Without options, the policy is that of opts,
// for instance the delay of NackRedeliveryDelay; but no message comes early, and redeliveries are counted on every subscription
// type. Subscribe does not change opts or what they point to. docs/migration.md lists what differs from a consumer of
// client.Subscribe.
//
// NackRedeliveryDelay, NackBackoffPolicy and EnableDefaultNackBackoffPolicy of opts mean the same as the options of this package.
// RetryEnable without DLQ means dead letters after 16 deliveries, as in pulsar-client-go; with WithReconsumeBackoff there are none.
// The broker cannot redeliver messages of non-persistent topics: they pass through, and Subscribe logs a warning. An error is
// pulsar-client-go's own, or satisfies errors.Is(err, ErrInvalidOption), or says that client is nil.
func Subscribe(client pulsar.Client, opts pulsar.ConsumerOptions, options ...Option) (*Consumer, error) {
	if client == nil {
		return nil, errors.New("redelivery: client is nil, want a pulsar.Client")
	}
	return subscribed(client, client.Subscribe, opts, options)
}

// SubscribeWith is Subscribe where other code subscribes: it calls subscribe with options made of opts, once and again after GiveBack,
// and drives the consumer that subscribe returns. subscribe may add to the options that it gets, and wrap the consumer if Chan is still
// the consumer's own; but it must not change MessageChannel, Interceptors, EventListener, BackOffPolicyFunc, Decryption, DLQ and
// RetryEnable, nor NackRedeliveryDelay and NackPrecisionBit, by which the Consumer asks the broker: messages would come late, or be lost
// to another consumer.
//
// For retries, dead letters and the number of partitions (see WithRedeliveryResolution) it needs a client: WithClient. Without
// WithClient or WithReconsumer, RetryEnable and DLQ of opts are an error, as is every option that publishes. The error of subscribe is
// returned as it is; a consumer that is not that of the options is closed. A panic of subscribe reaches the caller.
func SubscribeWith(subscribe func(pulsar.ConsumerOptions) (pulsar.Consumer, error), opts pulsar.ConsumerOptions,
	options ...Option) (*Consumer, error) {
	if subscribe == nil {
		return nil, errors.New("redelivery: subscribe is nil, want a function such as client.Subscribe")
	}
	return subscribed(nil, subscribe, opts, options)
}

// subscribed makes a Consumer of the consumer that with returns. client is what publishes, unless an option names another.
func subscribed(client pulsar.Client, with func(pulsar.ConsumerOptions) (pulsar.Consumer, error), opts pulsar.ConsumerOptions,
	options []Option) (*Consumer, error) {
	s, err := newSettings(client, options)
	if err != nil {
		return nil, err
	}
	p, err := prepare(opts, s)
	if err != nil {
		return nil, err
	}
	if err := p.open(); err != nil {
		return nil, err
	}
	done := false
	var log *attemptLog
	defer func() {
		if !done {
			p.publisher.close()
			log.close()
		}
	}()
	if log, err = p.openLog(); err != nil {
		return nil, err
	}
	prepared := p.consumerOptions()
	inner, err := with(prepared)
	if err != nil {
		return nil, err
	}
	if err := isOf(inner, prepared); err != nil {
		return nil, err
	}
	done = true
	c := newConsumer(inner, s, p.publisher, log, p)
	if delays(opts.Type) && opts.SubscriptionMode == pulsar.Durable && !opts.EnableZeroQueueConsumer {
		prepared.Name = inner.Name()
		c.inner.again = func() (pulsar.Consumer, error) {
			inner, err := with(prepared)
			if err == nil {
				err = isOf(inner, prepared)
			}
			return inner, err
		}
	}
	return c, nil
}

// isOf returns an error, and closes the consumer, if it was not subscribed with opts.
func isOf(consumer pulsar.Consumer, opts pulsar.ConsumerOptions) error {
	const want = "the consumer that was subscribed with the options it was given"
	switch c := consumer.(type) {
	case nil:
		return invalid("SubscribeWith: what subscribe returned", "nil", want)
	case *Consumer: // which would delay twice
		c.Close()
		return invalid("SubscribeWith: what subscribe returned", "a *redelivery.Consumer", want)
	}
	if !opts.EnableZeroQueueConsumer && chanOf(consumer) != (<-chan pulsar.ConsumerMessage)(opts.MessageChannel) {
		consumer.Close()
		return invalid("SubscribeWith: what subscribe returned", fmt.Sprintf("another %T", consumer), want)
	}
	return nil
}

// Wrap takes over consumer and returns a Consumer that redelivers by policy. From then on, do not use consumer directly. Close of
// the returned Consumer closes it.
//
// Nothing is known of how consumer was subscribed, and it does not tell of lost connections: nacked messages wait in memory, and what
// does not fit the memory limit comes late, by up to 4/3 of its own NackRedeliveryDelay. Wrap logs this. After a lost connection two
// consumers of a subscription may both handle what waited; SubscribeWith has neither limit. Messages of non-persistent topics pass
// through, since the broker cannot redeliver them.
//
// With WithClient there are dead letters, and retries if consumer is subscribed to its retry topic, as by RetryEnable: Wrap does not
// subscribe to it. To name these topics Wrap asks the broker for those of the consumer; of several topics it has to be told the Topic of
// WithDeadLetterPolicy.
//
// Wrap refuses a *Consumer, WithRedeliveryResolution, and options for retries if consumer is not subscribed to its retry topic. Such an error
// satisfies errors.Is(err, ErrInvalidOption). After an error consumer is open, and still the caller's.
func Wrap(consumer pulsar.Consumer, options ...Option) (*Consumer, error) {
	if consumer == nil {
		return nil, errors.New("redelivery: consumer is nil, want a pulsar.Consumer")
	}
	if _, ok := consumer.(*Consumer); ok { // which would delay twice
		return nil, invalid("Wrap", "a *redelivery.Consumer", "the consumer of client.Subscribe")
	}
	s, err := newSettings(nil, options)
	if err == nil {
		err = s.wrapped(consumer)
	}
	if err != nil {
		return nil, err
	}
	p, err := publisherOf(s, consumer)
	if err != nil {
		return nil, err
	}
	log, err := logOf(s, consumer)
	if err != nil {
		p.close()
		return nil, err
	}
	return newConsumer(consumer, s, p, log, nil), nil
}

// newSettings applies options.
func newSettings(client pulsar.Client, options []Option) (*settings, error) {
	s := &settings{client: client, memoryLimit: DefaultMemoryLimit, logger: slog.Default()}
	for i, option := range options {
		if option == nil {
			return nil, invalid(fmt.Sprintf("option %d", i+1), "nil", "an Option")
		}
		if err := option(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}
