package redelivery

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// retries reports whether the consumer has a retry topic of its own. RetryEnable of a zero-queue consumer is left to
// upstream, which refuses it.
func (s *settings) retries(opts pulsar.ConsumerOptions) bool {
	return s.reconsumer == nil && (opts.RetryEnable && !opts.EnableZeroQueueConsumer || s.reconsumeBackoff != nil)
}

// limits returns the dead letter policy that s and opts add up to, and reports whether there is one. As in upstream,
// RetryEnable includes dead letters.
func (s *settings) limits(opts pulsar.ConsumerOptions) (p DeadLetterPolicy, ok bool) {
	switch d := opts.DLQ; {
	case s.deadLetters != nil:
		p = *s.deadLetters
		if p.MaxReconsumes == 0 {
			p.MaxReconsumes = cmp.Or(p.MaxDeliveries, reconsume.Unlimited)
		}
	case d != nil:
		p = DeadLetterPolicyOf(*d)
	case s.reconsumeBackoff != nil: // the last delay repeats until the message is processed (PIP-94)
		p.MaxReconsumes = reconsume.Unlimited
	case opts.RetryEnable:
		p.MaxDeliveries, p.MaxReconsumes = publishing.MaxReconsumes, publishing.MaxReconsumes
	default:
		return p, false
	}
	return p, true
}

func (s *settings) checkRetries(opts pulsar.ConsumerOptions) error {
	if opts.DLQ != nil && opts.DLQ.MaxDeliveries == 0 {
		return invalid("ConsumerOptions.DLQ.MaxDeliveries", 0, "1 or more")
	}
	if opts.DLQ != nil && s.deadLetters != nil {
		return fmt.Errorf("%w: ConsumerOptions.DLQ and WithDeadLetterPolicy are both set, want one of them",
			ErrInvalidOption)
	}
	policy, _ := s.limits(opts)
	if s.reconsumer != nil {
		for field, topics := range map[string][2]string{
			"dead letter": {policy.Topic, s.reconsumer.DeadLetterTopic()},
			"retry":       {policy.RetryTopic, s.reconsumer.RetryTopic()},
		} {
			if topics[0] != "" && topicname.In(originOf(opts), topics[0]) != topics[1] {
				return invalid("the "+field+" topic", topics[0], "the "+topics[1]+" of WithReconsumer")
			}
		}
	}
	retries := s.retries(opts)
	switch {
	case s.reconsumer != nil || s.client != nil:
	case opts.RetryEnable && !opts.EnableZeroQueueConsumer:
		return invalid("ConsumerOptions.RetryEnable", true, withClient)
	case opts.DLQ != nil:
		return invalid("ConsumerOptions.DLQ", "set", withClient)
	}
	switch {
	case retries && opts.EnableZeroQueueConsumer:
		return invalid("ConsumerOptions.EnableZeroQueueConsumer", true, "false with a retry topic")
	case !retries && s.reconsumer == nil && s.deadLetters.needsRetries():
		return fmt.Errorf("%w: WithDeadLetterPolicy has RetryTopic, or MaxReconsumes without MaxDeliveries, want "+
			"RetryEnable or "+
			"WithReconsumeBackoff too", ErrInvalidOption)
	case !retries && s.reconsumer == nil && s.retryFrom > 0:
		return fmt.Errorf("%w: WithNackRetryTopic is set, want RetryEnable, WithReconsumeBackoff or WithReconsumer too",
			ErrInvalidOption)
	case delays(opts.Type), s.reconsumeBackoff == nil && s.retryFrom == 0:
		return nil
	}
	return invalid("ConsumerOptions.Type", typeName(opts.Type), "Shared or Key_Shared with WithReconsumeBackoff and "+
		"WithNackRetryTopic: the broker delays on no other")
}

// withClient is the remedy where there is no client to publish with.
const withClient = "WithClient or WithReconsumer too"

// delays reports whether the broker delays messages on subscriptions of a type.
func delays(t pulsar.SubscriptionType) bool { return t == pulsar.Shared || t == pulsar.KeyShared }

// warnOfOrder warns if a Java consumer of the same topics would use another retry topic.
func (p *preparation) warnOfOrder() {
	s, opts := p.settings, p.opts
	policy, _ := s.limits(opts)
	topics := topicsOf(opts)
	if !s.retries(opts) || policy.RetryTopic != "" || len(topics) < 2 {
		return
	}
	base := func(topic string) string { return topicname.Base(topicname.Full(topic)) }
	first := slices.MinFunc(topics, func(a, b string) int { return cmp.Compare(base(a), base(b)) })
	if base(first) != base(topics[0]) {
		s.warn("the retry topic is named after the first topic in the list; a Java consumer names it after "+first+
			", the first in alphabetical order, and would not find these retries: list that topic first, or set the "+
			"retry topic", "type", typeName(opts.Type), "subscription", opts.SubscriptionName)
	}
}

func typeName(t pulsar.SubscriptionType) string {
	switch t {
	case pulsar.Exclusive:
		return "Exclusive"
	case pulsar.Failover:
		return "Failover"
	case pulsar.Shared:
		return "Shared"
	default:
		return "Key_Shared"
	}
}

// publisherOf returns the publisher for a consumer given to Wrap.
func publisherOf(s *settings, consumer pulsar.Consumer) (*publisher, error) {
	policy, ok := s.limits(pulsar.ConsumerOptions{})
	if s.reconsumer != nil || s.client == nil {
		return newPublisher(s, policy), nil
	}
	if !ok {
		policy.MaxReconsumes = publishing.MaxReconsumes // as with RetryEnable
	}
	ids, err := consumer.GetLastMessageIDs() // the one public way to its topics
	if err != nil {
		return nil, fmt.Errorf("redelivery: asking for the topics of the wrapped consumer: %w", err)
	}
	o := reconsume.Options{Subscription: consumer.Subscription()}
	retryTopic := "" // the one that consumer is subscribed to
	for _, id := range ids {
		topic := topicname.Base(topicname.Full(id.Topic()))
		switch {
		case policy.RetryTopic != "" && topic == topicname.In(topic, policy.RetryTopic),
			policy.RetryTopic == "" && strings.HasSuffix(topic, "-"+o.Subscription+pulsar.RetryTopicSuffix):
			retryTopic = topic
		case policy.Topic != "" && topicname.Same(topic, topicname.In(topic, policy.Topic)):
			// the consumer would receive its own dead letters, without end
			return nil, invalid("the dead letter topic", policy.Topic, "another one than the wrapped consumer's")
		case o.Topic == "":
			o.Topic = topic
		case o.Topic != topic && policy.Topic == "":
			return nil, invalid("the wrapped consumer", "of "+o.Topic+" and "+topic,
				"Topic in WithDeadLetterPolicy for several topics")
		}
	}
	if retryTopic == "" && (s.reconsumeBackoff != nil || s.deadLetters.needsRetries()) {
		return nil, invalid("the wrapped consumer", "not subscribed to its retry topic",
			"RetryEnable in its options, or SubscribeWith, for "+
				"WithReconsumeBackoff and for a DeadLetterPolicy with RetryTopic, or with MaxReconsumes and no "+
				"MaxDeliveries")
	}
	policy.RetryTopic = cmp.Or(policy.RetryTopic, retryTopic)
	return open(s, policy, o, retryTopic != "")
}

// publishRetries makes the publisher, and chooses the topics of retries and dead letters.
func (p *preparation) publishRetries() error {
	opts, s := &p.opts, p.settings
	policy, ok := s.limits(*opts)
	p.publisher = newPublisher(s, policy)
	if s.reconsumer != nil { // its retry topic may be one that the consumer reads
		return checkUnread(*opts, s.reconsumer.DeadLetterTopic(), "dead letter topic", "the dead letter topic")
	} else if !ok || policy.Discard && !s.retries(*opts) {
		return nil
	}
	o := reconsume.Options{
		Topic:        originOf(*opts),
		Subscription: opts.SubscriptionName,
		NonDurable:   opts.SubscriptionMode == pulsar.NonDurable,
		ConsumerName: opts.Name,
		Schema:       opts.Schema,
		Decrypts:     opts.Decryption != nil,
	}
	if o.Topic == "" || o.Subscription == "" {
		return nil // client.Subscribe returns the error
	}
	for _, topic := range topicsOf(*opts) {
		if err := checkPersistent(topic); err != nil {
			return err
		}
	}
	if opts.DLQ != nil {
		s.warnOfShortName("ConsumerOptions.DLQ.DeadLetterTopic", opts.DLQ.DeadLetterTopic, o.Topic)
		s.warnOfShortName("ConsumerOptions.DLQ.RetryLetterTopic", opts.DLQ.RetryLetterTopic, o.Topic)
	}
	retries := s.retries(*opts)
	if retries {
		legacyTopics(s.client, &policy, o)
	}
	x, err := open(s, policy, o, retries)
	if err != nil {
		return err
	}
	dead := x.own.DeadLetterTopic()
	if err := cmp.Or(checkUnread(*opts, dead, "dead letter topic", "the dead letter topic"),
		checkTopics(*opts, x.own.RetryTopic(), "the retry topic")); err != nil {
		return err
	}
	if dead == x.retryTopic {
		return invalid("the dead letter topic", dead, "another one than the retry topic")
	}
	p.publisher = x
	return nil
}

// open makes a publisher with a Reconsumer that has the limits of a policy; retries says that the retry topic is read.
// The Reconsumer creates no producer yet.
func open(s *settings, policy DeadLetterPolicy, o reconsume.Options, retries bool) (*publisher, error) {
	o.RetryLetterTopic = topicname.In(o.Topic, cmp.Or(policy.RetryTopic, topicname.Retry(o.Topic, o.Subscription)))
	o.DeadLetterTopic = topicname.In(o.Topic, cmp.Or(policy.Topic, topicname.DeadLetter(o.Topic, o.Subscription)))
	if err := cmp.Or(checkPersistent(o.Topic), checkName("the dead letter topic", policy.Topic),
		checkName("the retry topic", policy.RetryTopic),
		checkNumber("the dead letter topic", o.DeadLetterTopic)); err != nil {
		return nil, err
	}
	o.MaxDeliveries = policy.MaxReconsumes
	o.Backoff = s.reconsumeBackoff
	o.ProducerOptions = policy.ProducerOptions
	o.InitialSubscriptionName = policy.InitialSubscriptionName
	o.DeadLetterTopicProducerName = policy.ProducerName
	o.OmitCause = policy.OmitCause
	o.Logger = s.logger
	r, err := reconsume.New(s.client, o)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidOption, err)
	}
	x := newPublisher(s, policy)
	x.publishesBy(r, policy, retries)
	if retries {
		x.retryTopic = o.RetryLetterTopic
	}
	return x, nil
}

// retry has the properties of a message from the retry topic.
type retry struct {
	count uint32        // redeliveries before it was published
	wait  time.Duration // how long the Consumer holds it back: the broker may end its delay early
}

func retryOf(msg pulsar.Message) retry {
	r := retry{count: publishing.RedeliveryCount(msg)}
	if delay, ok := publishing.DelayTime(msg); ok {
		const rounded = time.Millisecond // the publish time is rounded down by up to this
		// the publisher's clock may be ahead
		r.wait = min(delay, maxDelay) + rounded - max(0, time.Since(msg.PublishTime()))
	}
	return r
}

// maxDelay can be added to a time without overflow.
const maxDelay = 100 * 365 * 24 * time.Hour
