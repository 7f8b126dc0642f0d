package redelivery

import (
	"cmp"
	"slices"

	"github.com/pulsar-redelivery/redelivery/doctor"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// warnOfFindings logs the doctor's findings about the options.
func (s *settings) warnOfFindings() {
	if s.unchecked {
		return
	}
	s.warnOfOrder()
	s.warnOfAutoScaling()
	logged := map[string]bool{}
	for _, topic := range append(topicsOf(s.opts), s.opts.TopicsPattern) {
		if topic == "" {
			continue
		}
		for _, f := range doctor.ExamineOptions(s.setup(topic)) {
			if f.Status < doctor.Warning || logged[f.Found] {
				continue
			}
			logged[f.Found] = true
			s.warn(f.Found, "remedy", f.Remedy, "see", f.Link, "type", typeNames[s.opts.Type],
				"subscription", s.opts.SubscriptionName)
		}
	}
}

// warnOfAutoScaling warns that upstream reserves more of the client's memory limit than it releases: for each message
// of a batch upstream also reserves the bytes of all earlier messages of the batch.
func (s *settings) warnOfAutoScaling() {
	if s.opts.EnableAutoScaledReceiverQueueSize && s.publisher != nil {
		s.warn("with EnableAutoScaledReceiverQueueSize, batches use up the client's memory limit forever, "+
			"and then no retry or dead letter can be published: leave that option out",
			"type", typeNames[s.opts.Type], "subscription", s.opts.SubscriptionName)
	}
}

// setup describes a consumer of a topic to the doctor.
func (s *settings) setup(topic string) doctor.Setup {
	o := &s.Options
	d := doctor.Setup{Topic: topic, Subscription: o.Subscription, Type: o.Type, RetryTopic: o.RetryTopic,
		Policy: doctor.Policy{Nack: o.Nack, NackRetryTopic: o.NackRetryTopic, AckTimeout: o.AckTimeout,
			AckTimeoutBackoff: o.AckTimeoutBackoff,
			Reconsume:         o.Reconsume, MaxDeliveries: o.MaxDeliveries, MaxReconsumes: o.MaxReconsumes},
		InitialSubscriptionName: o.InitialSubscriptionName}
	// RetryEnable alone makes dead letters too, as in upstream, but deserves no warning
	if s.reconsumer == nil && (s.opts.DLQ != nil || s.deadLetters != nil) {
		d.DeadLetterTopic = o.DeadLetterTopic
	}
	return d
}

// warnOfOrder warns if a Java consumer of the same topics would use another retry topic.
func (s *settings) warnOfOrder() {
	topics := topicsOf(s.opts)
	if !s.retries || s.deadLetterPolicy.RetryTopic != "" || len(topics) < 2 {
		return
	}
	base := func(topic string) string { return topicname.Base(topicname.Full(topic)) }
	first := slices.MinFunc(topics, func(a, b string) int { return cmp.Compare(base(a), base(b)) })
	if base(first) != base(topics[0]) {
		s.warn("the retry topic is named after the first topic in the list; a Java consumer names it after "+first+
			", the first in alphabetical order, and would not find these retries: list that topic first, or set the "+
			"retry topic", "type", typeNames[s.opts.Type], "subscription", s.opts.SubscriptionName)
	}
}

// warnOfShortName logs that a name without a namespace means a topic of public/default, as in pulsar-client-go, though
// the consumer's topic is in another namespace.
func (s *settings) warnOfShortName(what, name, origin string) {
	if ours, public := topicname.In(origin, name), topicname.Full(name); topicname.IsShort(name) && ours != public {
		s.warn("a topic name has no namespace: as in pulsar-client-go, it is of public/default; write the whole name",
			"option", what, "name", name, "topic_in_namespace", ours, "topic_in_public_default", public)
	}
}
