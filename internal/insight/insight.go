// Package insight lets package worker ask a *redelivery.Consumer for what no exported method says.
package insight

import (
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Consumer is the inside of a *redelivery.Consumer.
type Consumer interface {
	// OmitsCause reports whether the texts of errors are secret: DeadLetterPolicy.OmitCause.
	OmitsCause() bool
	// IsSettled reports whether a message, which the application was given, was settled or nacked since.
	IsSettled(pulsar.Message) bool
	// OutlivesTTL reports whether a message is to become a dead letter rather than wait for a delay: WithDeadBeforeTTL.
	OutlivesTTL(pulsar.Message, time.Duration) bool
}

// Of returns the inside of a *redelivery.Consumer. Package redelivery sets it.
var Of func(consumer any) Consumer
