package redelivery

import (
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"
)

// WithDeadBeforeTTL (default: none) makes a message a dead letter before the time to live of its namespace (messageTTL) lets the broker
// delete it. A nack or a Snooze whose delay would end after ttl since the message was published makes the dead letter at once, and so does a
// delay that would end in the tenth of ttl before that, or in the last minute if that is shorter. ReasonTTL is its reason. ttl is the namespace's
// or the topic's, and at least a second. The option needs dead letters, without DeadLetterPolicy.Discard. A retry from the retry topic counts
// from its own publication, as for the broker.
//
// It does not apply to a message that does not fit the memory limit, nor to one that the application keeps for longer than ttl.
func WithDeadBeforeTTL(ttl time.Duration) Option {
	return func(s *settings) error {
		if ttl < time.Second {
			return invalid("WithDeadBeforeTTL", ttl, "1s or more")
		}
		s.ttl = ttl
		return nil
	}
}

// checkTTL returns an error if there is a ttl and no dead letters.
func (s *settings) checkTTL(opts pulsar.ConsumerOptions) error {
	switch policy, ok := s.limits(opts); {
	case s.ttl == 0:
		return nil
	case policy.Discard:
		return invalid("WithDeadBeforeTTL", s.ttl, "none with DeadLetterPolicy.Discard")
	case !ok && s.reconsumer == nil:
		return invalid("WithDeadBeforeTTL", s.ttl, "WithDeadLetterPolicy, ConsumerOptions.DLQ or WithReconsumer too")
	}
	return nil
}

// outlivesTTL reports whether the broker may delete a message before a delay is over.
func (s *settings) outlivesTTL(msg pulsar.Message, delay time.Duration) bool {
	return msg != nil && publishing.OutlivesTTL(msg.PublishTime(), s.ttl, delay)
}

// ttlError is the reason of a dead letter whose message would have been deleted.
type ttlError struct {
	delay, ttl time.Duration
	reason     error // of the nack; nil if there is none
}

func (e *ttlError) Error() string {
	text := fmt.Sprintf("a delay of %v ends after the TTL of %v", e.delay, e.ttl)
	if e.reason != nil {
		text += ": " + e.reason.Error()
	}
	return text
}

func (e *ttlError) Unwrap() error { return e.reason }
