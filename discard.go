package redelivery

import (
	"context"
	"fmt"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// discarder acknowledges messages that would become dead letters: DeadLetterPolicy.Discard. It leaves retries to the Publisher in it.
type discarder struct {
	publishing.Publisher // nil without a retry topic
	maxReconsumes        uint32
	isRetry              func(pulsar.Message) bool
}

func (d *discarder) StartDeadLetter(ctx context.Context, cm pulsar.ConsumerMessage, reason error) (wait func() error) {
	publishing.Of(ctx).DeadLetter("", reason)
	return func() error { return cm.Consumer.AckID(cm.ID()) }
}

func (d *discarder) StartLater(ctx context.Context, cm pulsar.ConsumerMessage, how publishing.Retry) (wait func() error) {
	n := uint32(0)
	if d.isRetry(cm.Message) {
		n = publishing.ReconsumeTimes(cm.Properties())
	}
	if n < d.maxReconsumes || how.Nacked { // nacks have a limit of their own
		return d.Publisher.StartLater(ctx, cm, how)
	}
	why := how.Cause
	if why == nil {
		why = fmt.Errorf("reconsumed %d times", n)
	}
	publishing.Of(ctx).For(publishing.MaxDeliveries)
	return d.StartDeadLetter(ctx, cm, why)
}

// discards has messages discarded that would become dead letters.
func (p *publisher) discards(policy DeadLetterPolicy) {
	p.Publisher = &discarder{p.Publisher, policy.MaxReconsumes, p.isRetry}
}

// publishesBy has r publish retries, and dead letters unless they are discarded: then the discarder comes first, by the same count.
func (p *publisher) publishesBy(r *reconsume.Reconsumer, policy DeadLetterPolicy, retries bool) {
	p.Publisher, p.own = r.Publisher(retries), r
	if policy.Discard {
		p.discards(policy)
	}
}

// checkDiscard returns an error if fields do not go together with Discard.
func (p *DeadLetterPolicy) checkDiscard() error {
	if !p.Discard {
		return nil
	}
	for field, value := range map[string]string{
		"Topic": p.Topic, "InitialSubscriptionName": p.InitialSubscriptionName, "ProducerName": p.ProducerName,
	} {
		if value != "" {
			return invalid("DeadLetterPolicy."+field, value, `"" with Discard, which publishes no dead letter`)
		}
	}
	if p.MaxDeliveries == 0 && p.MaxReconsumes == 0 {
		return invalid("DeadLetterPolicy.MaxDeliveries", 0, "1 or more with Discard")
	}
	return nil
}
