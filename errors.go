package redelivery

import "errors"

// Errors that errors.Is finds in what the methods return. Errors of pulsar-client-go are returned unchanged.
var (
	// ErrInvalidOption says that an option is not allowed: one of this package, or one of pulsar.ConsumerOptions that does
	// not go together with them. The error names the option, its value and what is allowed.
	ErrInvalidOption = errors.New("redelivery: invalid option")

	// ErrClosed says that the Consumer is closed, or was closed meanwhile.
	ErrClosed = errors.New("redelivery: the consumer is closed")

	// ErrNotHeld says that the application no longer has a message: it was settled, nacked, or its ack timeout is over.
	ErrNotHeld = errors.New("redelivery: the message is not with the application: it was settled, nacked or timed out")

	// ErrNoRetryTopic says that the consumer has no retry topic: it was subscribed without RetryEnable and
	// WithReconsumeBackoff, or wrapped without WithReconsumer.
	ErrNoRetryTopic = errors.New("redelivery: the consumer has no retry topic, want RetryEnable or WithReconsumeBackoff " +
		"with Subscribe, or WithReconsumer")
)
