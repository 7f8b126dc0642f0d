package reconsume

import (
	"context"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"
)

// Publisher is for package redelivery, and of no use outside of this module: its result is of an internal package. held
// says that a Consumer reads the retry topic and holds back early messages.
func (r *Reconsumer) Publisher(held bool) publishing.Publisher { return steps{r, held} }

// steps is a Reconsumer as a Consumer uses it.
type steps struct {
	r    *Reconsumer
	held bool
}

func (s steps) Policy(msg pulsar.Message) (publishing.Retry, error) { return s.r.policy(msg) }

func (s steps) Level(level int) (publishing.Retry, error) { return s.r.level(level) }

func (s steps) StartLater(ctx context.Context, cm pulsar.ConsumerMessage, how publishing.Retry,
	note *publishing.Note) (wait func() error) {
	start := s.r.startHeld
	if how.Nacked || !s.held { // if the delay of a nacked message is refused, the message waits in the Consumer
		start = s.r.retries.start
	}
	return s.r.publishRetry(ctx, cm, how, note, start)
}

func (s steps) StartDeadLetter(ctx context.Context, cm pulsar.ConsumerMessage, why error,
	note *publishing.Note) (wait func() error) {
	return s.r.deadLetter(ctx, cm, why, note)
}

// startHeld begins to publish a retry that a Consumer of package redelivery reads. If the namespace refuses the delay,
// startHeld publishes the retry without one: the Consumer holds it back for the time that DELAY_TIME says.
func (r *Reconsumer) startHeld(ctx context.Context, msg *pulsar.ProducerMessage) (answer func() error) {
	answered := r.retries.start(ctx, msg)
	return func() error {
		err := answered()
		if !isRefused(err) || msg.DeliverAfter == 0 {
			return err
		}
		msg.DeliverAfter, msg.DeliverAt = 0, atOnce // in no batch, as with a delay
		return r.retries.start(ctx, msg)()
	}
}
