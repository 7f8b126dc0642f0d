package redelivery

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// retries reports whether the consumer has a retry topic of its own. RetryEnable of a zero-queue consumer is left to upstream,
// which refuses it.
func (s *settings) retries(opts pulsar.ConsumerOptions) bool {
	return s.reconsumer == nil && (opts.RetryEnable && !opts.EnableZeroQueueConsumer || s.reconsumeBackoff != nil)
}

func (s *settings) checkRetries(opts pulsar.ConsumerOptions) error {
	if opts.DLQ != nil && opts.DLQ.MaxDeliveries == 0 {
		return invalid("ConsumerOptions.DLQ.MaxDeliveries", 0, "1 or more")
	}
	retries, ofOnesOwn := s.retries(opts), s.reconsumer != nil
	if d := opts.DLQ; d != nil && ofOnesOwn {
		for option, topics := range map[string][2]string{
			"DeadLetterTopic": {d.DeadLetterTopic, s.reconsumer.DeadLetterTopic()}, "RetryLetterTopic": {d.RetryLetterTopic, s.reconsumer.RetryTopic()},
		} {
			if topics[0] != "" && fullTopic(topics[0]) != fullTopic(topics[1]) {
				return invalid("ConsumerOptions.DLQ."+option, topics[0], "the "+topics[1]+" of WithReconsumer")
			}
		}
	}
	switch {
	case retries && opts.EnableZeroQueueConsumer:
		return invalid("ConsumerOptions.EnableZeroQueueConsumer", true, "false with a retry topic")
	case !retries && !ofOnesOwn && s.retryFrom > 0:
		return fmt.Errorf("%w: WithNackRetryTopic is set, want RetryEnable, WithReconsumeBackoff or WithReconsumer too", ErrInvalidOption)
	case delays(opts.Type), s.reconsumeBackoff == nil && s.retryFrom == 0:
		return nil
	}
	return invalid("ConsumerOptions.Type", typeName(opts.Type), "Shared or Key_Shared with WithReconsumeBackoff and "+
		"WithNackRetryTopic: the broker delays on no other")
}

// delays reports whether the broker delays messages on subscriptions of a type.
func delays(t pulsar.SubscriptionType) bool { return t == pulsar.Shared || t == pulsar.KeyShared }

// warn says which options will not do all that somebody may expect of them.
func (p *preparation) warn() {
	s, opts := p.settings, p.opts
	warn := func(what string) {
		s.logger.Warn("redelivery: "+what, "type", typeName(opts.Type), "subscription", opts.SubscriptionName)
	}
	if !delays(opts.Type) {
		const why = " without effect on delays: the broker delays on Shared and Key_Shared only"
		switch {
		case s.reconsumer != nil:
			warn("WithReconsumer" + why)
		case s.retries(opts):
			warn("RetryEnable" + why)
		}
	}
	switch {
	case opts.DLQ == nil || s.reconsumer != nil:
	case p.reconsumer == nil && !delays(opts.Type):
		warn("DLQ without effect: pulsar-client-go goes by the broker's count, which is 0 on Exclusive and Failover, want Subscribe, or WithReconsumer")
	case opts.DLQ.InitialSubscriptionName == "":
		warn("DLQ without InitialSubscriptionName: the broker deletes dead letters unless somebody has subscribed to them")
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

// publishRetries makes a Reconsumer, if the options ask for one, and chooses the topics.
func (p *preparation) publishRetries(client pulsar.Client) error {
	opts := &p.opts
	retries := p.settings.retries(*opts)
	if p.settings.reconsumer != nil || !retries && opts.DLQ == nil {
		return nil
	}
	policy := pulsar.DLQPolicy{MaxDeliveries: reconsume.DefaultMaxDeliveries}
	switch {
	case opts.DLQ != nil:
		policy = *opts.DLQ
	case p.settings.reconsumeBackoff != nil: // the last delay repeats until the message is processed (PIP-94)
		policy.MaxDeliveries = reconsume.Unlimited
	}
	o := reconsume.Options{
		Subscription:                opts.SubscriptionName,
		NonDurable:                  opts.SubscriptionMode == pulsar.NonDurable,
		ConsumerName:                opts.Name,
		RetryLetterTopic:            policy.RetryLetterTopic,
		DeadLetterTopic:             policy.DeadLetterTopic,
		MaxDeliveries:               policy.MaxDeliveries,
		Backoff:                     p.settings.reconsumeBackoff,
		ProducerOptions:             policy.ProducerOptions,
		DeadLetterTopicProducerName: policy.DeadLetterTopicProducerName,
		InitialSubscriptionName:     policy.InitialSubscriptionName,
		Schema:                      opts.Schema,
		Decrypts:                    opts.Decryption != nil,
	}
	if o.Topic = originOf(*opts); o.Topic == "" || o.Subscription == "" {
		return nil // client.Subscribe has an error for it
	}
	base := fullTopic(reconsume.BaseTopic(o.Topic))
	if retries {
		legacyTopics(client, base, &o)
	}
	if o.RetryLetterTopic == "" {
		o.RetryLetterTopic = base + "-" + o.Subscription + pulsar.RetryTopicSuffix
	}
	if o.DeadLetterTopic == "" {
		o.DeadLetterTopic = base + "-" + o.Subscription + pulsar.DlqTopicSuffix
	}
	if retries {
		p.retryTopic = fullTopic(o.RetryLetterTopic)
	}
	if err := checkPattern(opts.TopicsPattern, fullTopic(o.DeadLetterTopic)); err != nil {
		return err
	}
	if strings.HasPrefix(base, nonPersistent) {
		return invalid("ConsumerOptions.Topic", o.Topic, "a persistent topic with DLQ and retries")
	}
	r, err := reconsume.New(client, o)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidOption, err)
	}
	p.reconsumer = r
	return nil
}

// originOf returns the topic that the default retry and dead letter topics are named by: the first one; of a pattern its
// namespace and a slash, which upstream takes too.
func originOf(opts pulsar.ConsumerOptions) string {
	if opts.TopicsPattern == "" {
		return append(topicsOf(opts), "")[0]
	}
	namespace := strings.SplitAfterN(strings.TrimPrefix(fullTopic(opts.TopicsPattern), persistent), "/", 3)
	return persistent + strings.Join(namespace[:len(namespace)-1], "")
}

// checkPattern refuses a pattern that takes in its own dead letters: they would come again, and never end.
func checkPattern(pattern, deadLetterTopic string) error {
	if pattern == "" {
		return nil
	}
	matches, err := regexp.Compile(strings.TrimPrefix(fullTopic(pattern), persistent)) // as upstream, which matches a part too
	if err == nil && matches.MatchString(deadLetterTopic) {
		return invalid("ConsumerOptions.TopicsPattern", pattern, "one that does not match the dead letter topic "+deadLetterTopic)
	}
	return nil
}

// legacyTopics takes the retry and dead letter topics that early clients made, named by the subscription alone, where they
// exist and are partitioned, as upstream does.
func legacyTopics(client pulsar.Client, base string, o *reconsume.Options) {
	namespace := base[:strings.LastIndex(base, "/")+1]
	for suffix, topic := range map[string]*string{
		pulsar.RetryTopicSuffix: &o.RetryLetterTopic, pulsar.DlqTopicSuffix: &o.DeadLetterTopic,
	} {
		if *topic != "" {
			continue
		}
		legacy := namespace + o.Subscription + suffix
		partitions, err := client.TopicPartitions(legacy)
		if err == nil && len(partitions) > 0 && partitions[0] != legacy {
			*topic = legacy
		}
	}
}

// topicsOf returns the topics that are named; none of a pattern.
func topicsOf(opts pulsar.ConsumerOptions) []string {
	if opts.Topic != "" {
		return []string{opts.Topic}
	}
	return opts.Topics
}

// maxDeliveries returns after how many deliveries a message is a dead letter; 0 for never. As upstream has it, who enables
// retries has dead letters too.
func maxDeliveries(opts pulsar.ConsumerOptions, s *settings) uint32 {
	switch {
	case opts.DLQ != nil:
		return opts.DLQ.MaxDeliveries
	case opts.RetryEnable && s.reconsumeBackoff == nil:
		return reconsume.DefaultMaxDeliveries
	}
	return 0
}

// fullTopic returns the whole name of a topic.
func fullTopic(topic string) string {
	switch {
	case strings.Contains(topic, "://"):
		return topic
	case strings.Contains(topic, "/"):
		return persistent + topic
	}
	return persistent + "public/default/" + topic
}

// retryOf returns what a message of the retry topic says of itself: it is held back until its delay is over, which the
// broker may end early.
func retryOf(retry pulsar.Message) ledger.Retry {
	r := ledger.Retry{Count: reconsume.RedeliveryCount(retry)}
	if delay, ok := reconsume.DelayTime(retry); ok {
		const rounded = time.Millisecond                                                  // off the publish time
		r.Wait = min(delay, maxDelay) + rounded - max(0, time.Since(retry.PublishTime())) // it was published before now, whatever its clock says
	}
	return r
}

// maxDelay is added to moments without overflow.
const maxDelay = 100 * 365 * 24 * time.Hour
