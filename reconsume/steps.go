package reconsume

import (
	"context"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"
)

// steps is a Reconsumer as a Consumer uses it.
type steps struct{ r *Reconsumer }

func init() {
	publishing.PublisherOf = func(r any) publishing.Publisher { return steps{r.(*Reconsumer)} }
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
	return s.r.later(ctx, cm, retry(how))
}

func (s steps) StartDeadLetter(ctx context.Context, cm pulsar.ConsumerMessage, reason error) (wait func() error) {
	return s.r.deadLetter(ctx, cm, reason)
}
