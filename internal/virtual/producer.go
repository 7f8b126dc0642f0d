package virtual

import (
	"context"
	"errors"
	"sync"

	"github.com/apache/pulsar-client-go/pulsar"
)

type producer struct {
	pulsar.Producer
	broker *Broker
	topic  string

	mu   sync.Mutex
	last chan struct{} // closed when the message that was sent last is answered; nil before the first
}

func (p *producer) Topic() string { return p.topic }
func (p *producer) Name() string  { return "virtual" }
func (p *producer) Close()        {}

// SendAsync does not wait for the answer. Several messages may be on their way; they are published and answered in the
// order of the calls.
func (p *producer) SendAsync(ctx context.Context, msg *pulsar.ProducerMessage,
	done func(pulsar.MessageID, *pulsar.ProducerMessage, error)) {
	send, answered := p.broker.Send, make(chan struct{})
	p.mu.Lock()
	before := p.last
	p.last = answered
	p.mu.Unlock()
	go func() {
		defer close(answered)
		err := ctx.Err()
		if err == nil && send != nil {
			err = send(p.topic)
		}
		if before != nil {
			<-before
		}
		var id pulsar.MessageID
		if err == nil {
			id = p.broker.Publish(p.topic, msg)
		}
		done(id, msg, err)
	}()
}

var errClosed = errors.New("virtual: consumer closed")
