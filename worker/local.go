package worker

import (
	"fmt"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/policies"
)

// WithLocalRetries (default: none) calls the handler again up to n times, after a pause of pause.Next(0), Next(1) and
// so on, before a failure counts. If all of these calls fail, the message is nacked or becomes a dead letter. Use it
// for short errors, such as a conflict or a lost connection, which need no redelivery. Each delivery has n such calls,
// and n more if the message was kept in an outage (WithPauseOnFailure).
//
// During the pauses the message keeps its place (WithConcurrency), so they should be short. Its ack timeout is renewed.
// Each call has the whole WithTimeout, and the same redelivery count. Of a batch only the failed messages are handled
// again, together. There are no such calls after Permanent, RetryAfter and Snooze, during an outage
// (WithPauseOnFailure), and during a drain. If a drain begins in such a pause, the message is left to the broker.
// WithPauseOnFailure counts only the last call. n must be at least 1.
func WithLocalRetries(n int, pause backoff.RedeliveryBackoff) Option {
	return func(s *settings) error {
		if n < 1 {
			return invalid("WithLocalRetries' n", n, "1 or more")
		}
		if err := policies.Validate(pause); err != nil {
			return fmt.Errorf("%w: worker: WithLocalRetries' pause: %w", redelivery.ErrInvalidOption, err)
		}
		s.localRetries, s.localPause = n, pause
		return nil
	}
}

// retryLocally keeps failed messages that have local retries left.
func (s *slot) retryLocally(tasks []task) {
	if s.localRetries == 0 || s.probe != nil || s.replaced || s.taking.Err() != nil || s.outage.isOn() {
		return
	}
	for i := range tasks {
		t, o := &tasks[i], &s.outcomes[i]
		*o = o.decide(attempt{local: int(t.retries) < s.localRetries && !t.gone})
		if o.verb == hold {
			s.pause = max(s.pause, s.localPause.Next(t.retries))
			t.retries++
		}
	}
}
