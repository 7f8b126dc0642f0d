package redelivery

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// originOf returns the topic that the default retry and dead letter topics are named after: the first topic. For a
// pattern it returns the namespace and a slash, as upstream does.
func originOf(opts pulsar.ConsumerOptions) string {
	if opts.TopicsPattern == "" {
		return append(topicsOf(opts), "")[0]
	}
	namespace := strings.SplitAfterN(strings.TrimPrefix(topicname.Full(opts.TopicsPattern), topicname.Persistent), "/",
		3)
	return topicname.Persistent + strings.Join(namespace[:len(namespace)-1], "")
}

// checkUnread does what checkTopics does, and also refuses a pattern that matches the topic.
func checkUnread(opts pulsar.ConsumerOptions, topic, what string) error {
	if pattern := opts.TopicsPattern; pattern != "" {
		// unanchored, as in upstream
		matches, err := regexp.Compile(strings.TrimPrefix(topicname.Full(pattern), topicname.Persistent))
		if err == nil && matches.MatchString(topic) {
			return invalid("ConsumerOptions.TopicsPattern", pattern, "one that does not match "+what+" "+topic)
		}
	}
	return checkTopics(opts, topic, what)
}

// checkTopics refuses to publish to a topic that the consumer reads: a message published there would come again,
// without end.
func checkTopics(opts pulsar.ConsumerOptions, topic, what string) error {
	for _, of := range topicsOf(opts) {
		if topicname.Same(of, topic) {
			return invalid(what, topic, "another one than the consumer's")
		}
	}
	return nil
}

// legacyTopics sets the topics of policy to those of early clients, named after the subscription alone, if these exist
// and are partitioned. Upstream does the same.
func legacyTopics(client pulsar.Client, policy *DeadLetterPolicy, origin, subscription string) {
	base := topicname.Full(topicname.Base(origin))
	namespace := base[:strings.LastIndex(base, "/")+1]
	for suffix, topic := range map[string]*string{pulsar.RetryTopicSuffix: &policy.RetryTopic,
		pulsar.DlqTopicSuffix: &policy.Topic} {
		if *topic != "" {
			continue
		}
		legacy := namespace + subscription + suffix
		partitions, err := client.TopicPartitions(legacy)
		if err == nil && len(partitions) > 0 && partitions[0] != legacy {
			*topic = legacy
		}
	}
}

// topicsOf returns a copy of the topics that opts names; none for a pattern. It is a copy because callers append to it.
func topicsOf(opts pulsar.ConsumerOptions) []string {
	if opts.Topic != "" {
		return []string{opts.Topic}
	}
	return slices.Clone(opts.Topics)
}

// checkPersistent refuses a non-persistent topic: the broker could not redeliver a message whose retry or dead letter
// cannot be published.
func checkPersistent(topics []string) error {
	for _, topic := range topics {
		if !topicname.IsPersistent(topic) {
			return invalid("the topic", topic, "a persistent one with dead letters and retries")
		}
	}
	return nil
}

// checkName refuses a topic name that is invalid or that pulsar-client-go cannot parse: the first publication would
// fail. It allows "".
func checkName(what, topic string) error {
	if want := cmp.Or(topicname.Want(topic), topicname.WantNumber(topic)); topic != "" && want != "" {
		return invalid(what, topic, want)
	}
	return nil
}

// brokerDelays reports whether the broker delays messages on subscriptions of a type.
func brokerDelays(t pulsar.SubscriptionType) bool { return t == pulsar.Shared || t == pulsar.KeyShared }

var typeNames = map[pulsar.SubscriptionType]string{pulsar.Exclusive: "Exclusive", pulsar.Failover: "Failover",
	pulsar.Shared: "Shared", pulsar.KeyShared: "Key_Shared"}
