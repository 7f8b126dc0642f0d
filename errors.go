package redelivery

import (
	"errors"
	"fmt"
	"time"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/durations"
	"github.com/pulsar-redelivery/redelivery/internal/policies"
)

// Errors of this package, for errors.Is. Errors of pulsar-client-go are returned unchanged, except that Subscribe may
// put the subscription and the topic before them. errors.As still finds a *pulsar.Error.
var (
	// ErrInvalidOption says that an option of this package has a wrong value, or does not go together with another one
	// or with a field of pulsar.ConsumerOptions. The error names the option, its value and the allowed ones.
	ErrInvalidOption = errors.New("redelivery: invalid option")

	// ErrClosed says that the Consumer was closed before the call or during it. Receive returns pulsar-client-go's own
	// error instead, a *pulsar.Error with Result ConsumerClosed. The channel of Done is closed in both cases.
	ErrClosed = errors.New("redelivery: the consumer is closed")

	// ErrNotInFlight says that the application does not have the message, or no longer has it. From a ReconsumeLater
	// method or DeadLetter it means that the message is settled, that the application has a later delivery of it, or
	// that another consumer delivered it, such as the one given to Wrap; a message that waits after a nack or an ack
	// timeout may still be published. From InProgress it means that no ack timeout runs: the message was settled or
	// nacked, its ack timeout is over, or another consumer delivered it.
	ErrNotInFlight = errors.New("redelivery: the application does not have the message: it was settled, nacked or " +
		"timed out, or not delivered by this Consumer")

	// ErrNoRetryTopic says that the Consumer has no retry topic: RetryEnable, WithReconsumeBackoff and WithReconsumer
	// are not set, or the consumer given to Wrap is not subscribed to it. From DeadLetter it says that there is no dead
	// letter topic either.
	ErrNoRetryTopic = errors.New("redelivery: the consumer has no retry topic, want RetryEnable, " +
		"WithReconsumeBackoff or WithReconsumer")
)

// noDeadLetterTopic is ErrNoRetryTopic for DeadLetter.
type noDeadLetterTopic struct{}

func (noDeadLetterTopic) Error() string {
	return "redelivery: the consumer has no dead letter topic, want WithDeadLetterPolicy, ConsumerOptions.DLQ or " +
		"WithReconsumer"
}

func (noDeadLetterTopic) Unwrap() error { return ErrNoRetryTopic }

// both returns an error for two options that exclude each other.
func both(one, other string) error {
	return fmt.Errorf("%w: %s and %s are both set, want one of them", ErrInvalidOption, one, other)
}

// invalid returns an error that names an option, its value, and the allowed ones.
func invalid(option string, value any, want string) error {
	return fmt.Errorf("%w: %s is %v, want %s", ErrInvalidOption, option, value, want)
}

// checkDuration refuses a duration that an option does not allow; zero says whether 0 is allowed.
func checkDuration(option string, d time.Duration, zero bool) error {
	if want := durations.Wanted(d, zero); want != "" {
		return invalid(option, d, want)
	}
	return nil
}

func checkPolicy(option string, b backoff.RedeliveryBackoff) error {
	if err := policies.Validate(b); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalidOption, option, err)
	}
	return nil
}
