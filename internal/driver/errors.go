package driver

import (
	"errors"
	"fmt"
)

// The errors of package redelivery.
var (
	ErrInvalidOption = errors.New("redelivery: invalid option")
	ErrClosed        = errors.New("redelivery: the consumer is closed")
	ErrNotHeld       = errors.New("redelivery: the message is not with the application: it was settled, nacked or timed out")
	ErrNoRetryTopic  = errors.New("redelivery: the consumer has no retry topic, want RetryEnable or WithReconsumeBackoff " +
		"with Subscribe, or WithReconsumer")
)

// noDeadLetterTopic is ErrNoRetryTopic for DeadLetter.
type noDeadLetterTopic struct{}

func (noDeadLetterTopic) Error() string {
	return "redelivery: the consumer has no dead letter topic, want ConsumerOptions.DLQ with Subscribe, or WithReconsumer"
}

func (noDeadLetterTopic) Unwrap() error { return ErrNoRetryTopic }

// Invalid says what is wrong with an option, and what is allowed.
func Invalid(option string, value any, want string) error {
	return fmt.Errorf("%w: %s is %v, want %s", ErrInvalidOption, option, value, want)
}
