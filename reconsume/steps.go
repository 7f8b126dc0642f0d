package reconsume

import (
	"context"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"
)

// steps is a Reconsumer as a Consumer uses it.
type steps struct {
	r    *Reconsumer
	held bool // the Consumer reads the retry topic, and holds back what comes early
}

func init() {
	publishing.PublisherOf = func(r any, held bool) publishing.Publisher { return steps{r.(*Reconsumer), held} }
}

func (s steps) Policy(msg pulsar.Message) (publishing.Retry, error) {
	how, err := s.r.policy(msg)
	return publishing.Retry(how), err
}

func (s steps) Level(level int) (publishing.Retry, error) {
	how, err := s.r.level(level)
	return publishing.Retry(how), err
}

func (s steps) With(how publishing.Retry, options any) publishing.Retry {
	more, _ := options.([]LaterOption)
	return publishing.Retry(with(retry(how), more))
}

func (s steps) StartLater(ctx context.Context, cm pulsar.ConsumerMessage, how publishing.Retry) (wait func() error) {
	start := s.r.startHeld
	if how.Nacked || !s.held { // what a nack moves waits in the Consumer anyway
		start = s.r.startDelayed
	}
	return s.r.later(ctx, cm, retry(how), start)
}

func (s steps) StartDeadLetter(ctx context.Context, cm pulsar.ConsumerMessage, reason error) (wait func() error) {
	return s.r.deadLetter(ctx, cm, reason)
}
