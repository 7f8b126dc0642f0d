package reconsume

import (
	"context"

	"github.com/apache/pulsar-client-go/pulsar"
)

// order publishes messages with several producers, in the order of the calls. A producer begins only after the broker
// has stored the messages of the previous producer.
type order struct {
	turn chan struct{} // full while a caller starts
	last *producer
}

func newOrder() order { return order{turn: make(chan struct{}, 1)} }

func (o *order) start(ctx context.Context, p *producer, msg *pulsar.ProducerMessage) (answer func() error) {
	select {
	case o.turn <- struct{}{}:
		defer func() { <-o.turn }()
	case <-ctx.Done():
		return failed(ctx.Err())
	}
	if o.last != nil && o.last != p {
		if o.last.drain(ctx); ctx.Err() != nil {
			return failed(ctx.Err())
		}
	}
	o.last = p
	return p.start(ctx, msg)
}

// drain returns when the broker has answered all messages that p sent, or when ctx is done.
func (p *producer) drain(ctx context.Context) {
	p.mu.Lock()
	m := p.made
	p.mu.Unlock()
	if m == nil {
		return
	}
	select {
	case <-m.ready:
		if m.err == nil {
			m.flush(ctx)
		}
	default: // nothing can have been sent
	}
}
