package redelivery

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"

	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// Subscribe subscribes with opts and returns a Consumer that redelivers by policy. Without options, the policy is that of opts,
// for instance the delay of NackRedeliveryDelay; but no message comes early, and redeliveries are counted on every subscription
// type. Subscribe does not change opts or what they point to. docs/migration.md lists what differs from a consumer of
// client.Subscribe.
//
// NackRedeliveryDelay, NackBackoffPolicy and EnableDefaultNackBackoffPolicy of opts mean the same as the options of this package.
// RetryEnable without DLQ means dead letters after 16 deliveries, as in pulsar-client-go. The broker cannot redeliver messages of
// non-persistent topics: they pass through, and Subscribe logs a warning. An error is pulsar-client-go's own, or satisfies
// errors.Is(err, ErrInvalidOption), or says that client is nil.
func Subscribe(client pulsar.Client, opts pulsar.ConsumerOptions, options ...Option) (*Consumer, error) {
	if client == nil {
		return nil, errors.New("redelivery: client is nil, want a pulsar.Client")
	}
	p, err := prepare(opts, options)
	if err != nil {
		return nil, err
	}
	if p.settings.resolution == 0 {
		if p.settings.resolution, err = p.defaultResolution(client); err != nil {
			return nil, err
		}
	}
	if err := p.publishRetries(client); err != nil {
		return nil, err
	}
	inner, err := client.Subscribe(p.consumerOptions())
	if err != nil {
		if p.reconsumer != nil {
			p.reconsumer.Close()
		}
		return nil, err
	}
	return newConsumer(inner, p.settings, p), nil
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
	p, err := prepare(opts, options)
	if err != nil {
		return pulsar.ConsumerOptions{}, err
	}
	if err := p.settings.checkWithoutClient(); err != nil {
		return pulsar.ConsumerOptions{}, err
	}
	if p.settings.resolution == 0 {
		p.settings.resolution = p.resolutionOf(1)
	}
	prepared := p.consumerOptions()
	preparations.Store((<-chan pulsar.ConsumerMessage)(prepared.MessageChannel), p)
	return prepared, nil
}

// Wrap takes over consumer and returns a Consumer that redelivers by policy. From then on, do not use consumer directly. Close of
// the returned Consumer closes it.
//
// A consumer that was subscribed with options from Prepare has their resolution. Any other consumer also redelivers by policy and
// never early, but up to 4/3 of its own NackRedeliveryDelay late. Wrap logs this; see WithInnerNackDelay. Messages of
// non-persistent topics pass through, since the broker cannot redeliver them.
func Wrap(consumer pulsar.Consumer, options ...Option) (*Consumer, error) {
	if consumer == nil {
		return nil, errors.New("redelivery: consumer is nil, want a pulsar.Consumer")
	}
	if found, ok := preparations.LoadAndDelete(chanOf(consumer)); ok {
		p := found.(*preparation)
		s, err := newSettings(&p.opts, slices.Concat(p.options, options))
		if err == nil {
			err = s.checkWithoutClient()
		}
		if err == nil && s.reconsumer != p.settings.reconsumer && (p.opts.DLQ != nil || p.opts.RetryEnable) {
			err = fmt.Errorf("%w: WithReconsumer is given to Wrap, want it with Prepare where there are DLQ or RetryEnable", ErrInvalidOption)
		}
		if err == nil && s.resolution != 0 && s.resolution != p.settings.resolution {
			err = invalid("WithRedeliveryResolution", s.resolution, fmt.Sprintf("the %v of Prepare", p.settings.resolution))
		}
		if err != nil {
			preparations.Store(chanOf(consumer), p)
			return nil, err
		}
		s.resolution = p.settings.resolution
		p.settings = s
		return newConsumer(consumer, s, p), nil
	}
	s, err := newSettings(nil, options)
	if err != nil {
		return nil, err
	}
	if err := s.checkWithoutClient(); err != nil {
		return nil, err
	}
	if s.resolution != 0 {
		return nil, invalid("WithRedeliveryResolution", s.resolution, "it with Subscribe or Prepare only")
	}
	late := "4/3 of its NackRedeliveryDelay"
	if s.innerDelay != 0 {
		late = fmt.Sprintf("%v, less the message's own delay but at least %v", s.innerDelay*4/3, s.innerDelay/3)
	}
	s.logger.Warn("redelivery: the wrapped consumer was not prepared, so messages may come late",
		"by up to", late, "consumer", consumer.Name(), "subscription", consumer.Subscription())
	return newConsumer(consumer, s, nil), nil
}

// preparations are the consumers' options that Prepare made and Wrap has not seen yet, by the message channel that it
// gave each: the one thing of a consumer that both can see.
var preparations sync.Map // of *preparation by <-chan pulsar.ConsumerMessage

// checkWithoutClient refuses what only Subscribe can do, which has a client to publish by.
func (s *settings) checkWithoutClient() error {
	if s.reconsumeBackoff != nil {
		return invalid("WithReconsumeBackoff", s.reconsumeBackoff, "Subscribe in place of Prepare and Wrap, or WithReconsumer")
	}
	if s.retryFrom > 0 && s.reconsumer == nil {
		return invalid("WithNackRetryTopic", s.retryFrom, "Subscribe in place of Prepare and Wrap, or WithReconsumer too")
	}
	return nil
}

// preparation is what is known about a consumer that was subscribed for us.
type preparation struct {
	opts     pulsar.ConsumerOptions // as the caller wrote them
	options  []Option
	settings *settings
	hooks    *hooks

	reconsumer *reconsume.Reconsumer // of the Consumer's own; nil if it has none
	retryTopic string                // that it subscribes to as well; "" if there is none
}

func prepare(opts pulsar.ConsumerOptions, options []Option) (*preparation, error) {
	s, err := newSettings(&opts, options)
	if err != nil {
		return nil, err
	}
	for _, topic := range append([]string{opts.Topic, opts.TopicsPattern}, opts.Topics...) {
		if strings.HasPrefix(topic, nonPersistent) {
			s.logger.Warn("redelivery: messages of a non-persistent topic are not redelivered: the broker keeps none",
				"topic", topic, "subscription", opts.SubscriptionName)
		}
	}
	p := &preparation{opts: opts, options: options, settings: s}
	d := opts.Decryption
	p.hooks = &hooks{of: opts.Interceptors, pattern: opts.TopicsPattern != "",
		nacksUndecryptable: d == nil || d.ConsumerCryptoFailureAction == crypto.ConsumerCryptoFailureActionFail}
	return p, nil
}

// tick returns the period of requests. What comes with one tick and is nacked at once is due a round delay later: if the tick
// divided that, it would miss its next tick by just the broker's time, every time.
func tick(resolution time.Duration) time.Duration { return resolution * 15 / 16 }

const persistent, nonPersistent = "persistent://", "non-persistent://"

// requestsAreDueAtOnce makes every due time of the consumer's own nack tracker fall into 1970, so that each of its ticks
// sends all requests made since the last.
const requestsAreDueAtOnce = int64(62)

// consumerOptions are what the inner consumer is subscribed with. Its nacks only carry our requests: they go out at the
// next tick, and its ticks come once per resolution.
func (p *preparation) consumerOptions() pulsar.ConsumerOptions {
	opts, bits := p.opts, requestsAreDueAtOnce
	opts.NackRedeliveryDelay = 3 * tick(p.settings.resolution) // of which upstream makes a tick of a third
	opts.NackPrecisionBit = &bits
	opts.NackBackoffPolicy = nil
	opts.EnableDefaultNackBackoffPolicy = false
	opts.MessageChannel = make(chan pulsar.ConsumerMessage) // what a buffer has at a reconnect comes twice
	opts.Interceptors = pulsar.ConsumerInterceptors{p.hooks}
	opts.BackOffPolicyFunc = p.hooks.backoffPolicy(opts.BackOffPolicyFunc)
	if opts.Type == pulsar.Failover {
		opts.EventListener = listener{opts.EventListener, p.hooks}
	}
	p.hooks.tick, p.hooks.children = tick(p.settings.resolution), p.children()
	if opts.Topics != nil {
		opts.Topics = append([]string(nil), opts.Topics...) // upstream normalises them in place
	}
	if p.retryTopic != "" && opts.TopicsPattern == "" {
		opts.Topic, opts.Topics = "", append(slices.Clone(topicsOf(opts)), p.retryTopic)
	}
	switch {
	case p.retryTopic != "" && opts.TopicsPattern != "": // upstream only subscribes to the retry topic
		opts.RetryEnable = true
		opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: math.MaxUint32, RetryLetterTopic: p.retryTopic, DeadLetterTopic: p.retryTopic}
	case p.reconsumer != nil: // upstream has no part in retries and dead letters: its routers can hang, panic and lose
		opts.DLQ = nil
		opts.RetryEnable = opts.RetryEnable && opts.EnableZeroQueueConsumer // for which upstream has an error
	case opts.DLQ != nil || opts.RetryEnable:
		policy := pulsar.DLQPolicy{MaxDeliveries: reconsume.DefaultMaxDeliveries}
		if opts.DLQ != nil {
			policy = *opts.DLQ // upstream fills it in
		}
		if p.settings.reconsumer != nil {
			policy.MaxDeliveries = math.MaxUint32 // upstream only subscribes to the retry topic
		}
		opts.DLQ = &policy
	}
	var decryption pulsar.MessageDecryptionInfo // which upstream fills in
	if opts.Decryption != nil {
		decryption = *opts.Decryption
		opts.Decryption = &decryption
	}
	if p.hooks.nacksUndecryptable {
		// Left to upstream it would be nacked by upstream, and come back every tick.
		decryption.ConsumerCryptoFailureAction = crypto.ConsumerCryptoFailureActionConsume
		opts.Decryption = &decryption
	}
	return opts
}

// children returns how many consumers of a topic have to give up until the consumer is of no use. One is enough for a
// pattern: it does not come back to a topic that it gave up.
func (p *preparation) children() int {
	topics := topicsOf(p.opts)
	if len(topics) == 0 {
		return 1
	}
	distinct := map[string]bool{}
	if p.retryTopic != "" {
		distinct[p.retryTopic] = true
	}
	for _, topic := range topics {
		distinct[fullTopic(topic)] = true
	}
	return len(distinct)
}

// defaultResolution counts the partitions, since each costs a ticker. The topics of a pattern count as none.
func (p *preparation) defaultResolution(client pulsar.Client) (time.Duration, error) {
	n := 0
	if p.opts.SubscriptionName != "" { // else client.Subscribe has an error for it
		for _, topic := range topicsOf(p.opts) {
			partitions, err := client.TopicPartitions(topic)
			if err != nil {
				return 0, err
			}
			n += len(partitions)
		}
	}
	return p.resolutionOf(n), nil
}

// resolutionOf returns the default resolution: it is low where all that comes back by policy waits in memory.
func (p *preparation) resolutionOf(partitions int) time.Duration {
	s, n := p.settings, time.Duration(partitions)
	if s.timeout == 0 && s.holdLimit > 0 && (s.source == FromMemory || s.source == FromAuto && p.opts.Type != pulsar.Shared) {
		return min(maxResolution, max(slowResolution, n*slowResolution/2))
	}
	return min(maxResolution, max(DefaultResolution, n*time.Millisecond/2))
}

// chanOf returns a consumer's channel, or nil of a zero-queue consumer, which panics when asked for it.
func chanOf(consumer pulsar.Consumer) (ch <-chan pulsar.ConsumerMessage) {
	defer func() { _ = recover() }()
	return consumer.Chan()
}
