package redelivery

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

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
	s, err := newSettings(options)
	if err != nil {
		return nil, err
	}
	p, err := prepare(opts, s)
	if err != nil {
		return nil, err
	}
	if err := p.open(client); err != nil {
		return nil, err
	}
	inner, err := client.Subscribe(p.consumerOptions())
	if err != nil {
		p.close()
		return nil, err
	}
	return newConsumer(inner, s, p), nil
}

// Prepare returns a copy of opts for client.Subscribe that lets Wrap redeliver as precisely as Subscribe does. Wrap recognizes
// the consumer, and applies the options given here and then its own. Prepare does not know the number of partitions: the default
// resolution is that of one (see WithRedeliveryResolution).
//
// Prepare and Wrap have no client to publish with, so retries and dead letters need WithReconsumer. Without it, pulsar-client-go
// applies DLQ itself, by the broker's count, and the ReconsumeLater methods have no retry topic.
//
// The returned options are for one consumer. This package remembers them until Wrap gets that consumer: call Prepare once, not in
// a loop that tries to subscribe. Wrap cannot recognize a zero-queue consumer, so Prepare refuses it: use Subscribe.
func Prepare(opts pulsar.ConsumerOptions, options ...Option) (pulsar.ConsumerOptions, error) {
	if opts.EnableZeroQueueConsumer {
		return pulsar.ConsumerOptions{}, fmt.Errorf("%w: ConsumerOptions.EnableZeroQueueConsumer is true, want false, "+
			"or Subscribe in place of Prepare and Wrap", ErrInvalidOption)
	}
	s, err := newSettings(options)
	if err != nil {
		return pulsar.ConsumerOptions{}, err
	}
	p, err := prepare(opts, s)
	if err == nil {
		err = s.checkWithoutClient()
	}
	if err != nil {
		return pulsar.ConsumerOptions{}, err
	}
	p.setResolution(1)
	inner := p.consumerOptions()
	preparations.Store((<-chan pulsar.ConsumerMessage)(inner.MessageChannel), prepared{p, options})
	return inner, nil
}

// prepared is what Wrap has to know of Prepare.
type prepared struct {
	*preparation
	options []Option
}

// preparations are those that Wrap has not seen yet, by the message channel that each consumer was given: the one thing of it
// that both can see.
var preparations sync.Map // of preparation by <-chan pulsar.ConsumerMessage

// Wrap takes over consumer and returns a Consumer that redelivers by policy. From then on, do not use consumer directly. Close of
// the returned Consumer closes it.
//
// A consumer that was subscribed with options from Prepare has their resolution. Of any other consumer nothing is known, and it does not
// tell of lost connections: its messages wait in memory, and what does not fit the hold limit comes late, by up to 4/3 of its own
// NackRedeliveryDelay. Wrap logs this. After a lost connection two consumers of a subscription may both handle what waited. Wrap refuses
// a *Consumer. Messages of non-persistent topics pass through, since the broker cannot redeliver them.
func Wrap(consumer pulsar.Consumer, options ...Option) (*Consumer, error) {
	if consumer == nil {
		return nil, errors.New("redelivery: consumer is nil, want a pulsar.Consumer")
	}
	if _, ok := consumer.(*Consumer); ok { // which would delay twice
		return nil, invalid("Wrap", "a *redelivery.Consumer", "the consumer of client.Subscribe")
	}
	found, ok := preparations.LoadAndDelete(chanOf(consumer))
	if !ok {
		s, err := newSettings(options)
		if err == nil {
			err = s.unprepared(consumer)
		}
		if err != nil {
			return nil, err
		}
		return newConsumer(consumer, s, nil), nil
	}
	p := found.(prepared)
	s, err := newSettings(slices.Concat(p.options, options))
	if err == nil {
		err = p.resettle(s)
	}
	if err != nil {
		preparations.Store(chanOf(consumer), p)
		return nil, err
	}
	return newConsumer(consumer, s, p.preparation), nil
}

// newSettings applies options.
func newSettings(options []Option) (*settings, error) {
	s := &settings{holdLimit: DefaultHoldLimit, logger: slog.Default()}
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
