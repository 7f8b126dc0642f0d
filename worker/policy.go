package worker

import (
	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/backoff"
)

// WithPolicy (default: the Consumer's nack policy for all) chooses a policy for each message that failed, by the message and by its
// error: the classifier's, if there is one. The policy gets the message's redelivery count, and its delay replaces the Consumer's. If
// policyFor returns nil, the Consumer's policy applies. RetryAfter, Permanent, Snooze and an outage (WithPauseOnFailure) take precedence.
// MaxDeliveries applies as always. Many goroutines call policyFor at once. If policyFor or the policy panics, the Consumer's policy
// applies.
func WithPolicy(policyFor func(msg pulsar.Message, err error) backoff.RedeliveryBackoff) Option {
	return func(s *settings) error {
		if policyFor == nil {
			return invalid("WithPolicy", "nil", "a func(pulsar.Message, error) backoff.RedeliveryBackoff")
		}
		s.policy = policyFor
		return nil
	}
}

// delayByPolicy gives a failure the delay of WithPolicy, if that says one.
func (r *run) delayByPolicy(t task, o *outcome) {
	msg := t.counted()
	_ = r.protect(func() error {
		if policy := r.policy(msg, o.err); policy != nil {
			o.verb, o.delay = again, max(0, policy.Next(msg.RedeliveryCount()))
		}
		return nil
	})
}
