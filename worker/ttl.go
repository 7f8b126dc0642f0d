package worker

import (
	"context"

	"github.com/pulsar-redelivery/redelivery/internal/insight"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
)

// diesOfTTL publishes a message of a key as a dead letter that would wait here until the broker deletes it, and reports whether it did, or left
// the message. The Consumer does so with all other messages.
func (r *run) diesOfTTL(ctx context.Context, t *task, o outcome) bool {
	delay := o.delay
	if o.verb == nack {
		d, err := r.consumer.Delivery(t.counted())
		if err != nil {
			return false
		}
		delay = d.NackDelay
	}
	if !insight.Of(r.consumer).OutlivesTTL(t.msg, delay) {
		return false
	}
	o.or = o.verb
	switch r.deadLetter(publishing.Because(ctx, publishing.TTL), t, o) {
	case dead:
		r.counts.finished.Add(1)
		return true
	case done:
		return true
	default:
		return false
	}
}
