package redelivery

import (
	"github.com/pulsar-redelivery/redelivery/doctor"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// warn logs the doctor's findings about the options.
func (p *preparation) warn() {
	if p.settings.unchecked {
		return
	}
	p.warnOfOrder()
	p.warnOfAutoScaling()
	told := map[string]bool{}
	for _, topic := range append(topicsOf(p.opts), p.opts.TopicsPattern) {
		if topic == "" {
			continue
		}
		for _, f := range doctor.ExamineOptions(p.setup(topic)) {
			if f.Status < doctor.Warning || told[f.Found] {
				continue
			}
			told[f.Found] = true
			p.settings.warn(f.Found, "remedy", f.Remedy, "see", f.Link, "type", typeName(p.opts.Type),
				"subscription", p.opts.SubscriptionName)
		}
	}
}

// warnOfAutoScaling says that upstream reserves more of the client's memory limit than it releases: for each message of
// a batch the sum of those before it too.
func (p *preparation) warnOfAutoScaling() {
	if p.opts.EnableAutoScaledReceiverQueueSize && p.publisher.Publisher != nil {
		p.settings.warn("with EnableAutoScaledReceiverQueueSize, batches use up the client's memory limit for ever, "+
			"and then no retry or dead letter can be published: leave it out",
			"type", typeName(p.opts.Type), "subscription", p.opts.SubscriptionName)
	}
}

// setup describes a consumer of a topic to the doctor.
func (p *preparation) setup(topic string) doctor.Setup {
	s, opts := p.settings, p.opts
	limits, ok := s.limits(opts)
	d := doctor.Setup{
		Topic:        topic,
		Subscription: opts.SubscriptionName,
		Type:         typeName(opts.Type),
		RetryTopic:   p.publisher.retryTopic,
		Policy: doctor.Policy{Nack: s.nackBackoff, NackRetryTopic: s.retryFrom, AckTimeout: s.timeout,
			AckTimeoutBackoff: s.timeoutBackoff,
			Reconsume:         s.reconsumeBackoff, MaxDeliveries: limits.MaxDeliveries,
			MaxReconsumes: limits.MaxReconsumes,
			MemoryLimit:   s.memoryLimit},
		InitialSubscriptionName: limits.InitialSubscriptionName,
		Consumer: doctor.Consumer{ReceiverQueueSize: opts.ReceiverQueueSize,
			BatchIndexAcknowledgment: &opts.EnableBatchIndexAcknowledgment},
	}
	for _, limit := range []*uint32{&d.Policy.MaxDeliveries, &d.Policy.MaxReconsumes} {
		if *limit == reconsume.Unlimited {
			*limit = 0
		}
	}
	// RetryEnable alone has dead letters, too, as upstream: it is not warned of
	asked := opts.DLQ != nil || s.deadLetters != nil && !s.deadLetters.Discard
	if own := p.publisher.own; ok && own != nil && asked && s.reconsumer == nil {
		d.DeadLetterTopic = own.DeadLetterTopic()
	}
	return d
}
