package publishing

import (
	"context"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Publisher has the steps of a reconsume.Reconsumer. A Consumer calls them one by one, since it acts between them.
type Publisher interface {
	// Policy asks the policy how to reconsume a message. Callers must not call it while they publish.
	Policy(pulsar.Message) (Retry, error)
	// Level returns how to reconsume a message with a delay level.
	Level(level int) (Retry, error)
	// StartLater begins to publish a retry, or a dead letter after too many retries. wait, note and the order are as in
	// StartDeadLetter. StartLater does not call how.Callback: the caller does.
	StartLater(ctx context.Context, cm pulsar.ConsumerMessage, how Retry, note *Note) (wait func() error)
	// StartDeadLetter begins to publish a dead letter, and fills in note. It blocks until a producer has room for the
	// message. The caller must call wait, which waits for the broker's answer and acknowledges the message. Messages
	// are published in the order of the calls of StartDeadLetter, not of wait.
	StartDeadLetter(ctx context.Context, cm pulsar.ConsumerMessage, why error, note *Note) (wait func() error)
}

// MaxReconsumes is the default limit of how often a message is reconsumed, as in all clients.
const MaxReconsumes = 16

// Retry is how a message is reconsumed.
type Retry struct {
	Delay      time.Duration
	Level      int  // from 1; 0 for none
	Nacked     bool // the retry carries the message's next redelivery count, so that its delays keep growing
	Snoozed    bool // this delivery does not count
	Properties map[string]string
	Cause      error       // the error that the retry, or the dead letter after too many retries, carries
	Callback   func(error) // gets the outcome; nil if the caller waits for it
}
