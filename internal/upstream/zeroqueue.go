package upstream

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/pulsar-client-go/pulsar"
)

// ErrUndecryptable says that a consumer without a queue has panicked, as it does on a message that it cannot decrypt.
// The id of the message is unknown.
var ErrUndecryptable = errors.New("a message cannot be decrypted: it stays at the broker until the consumer reconnects")

// zeroQueue calls Receive of a consumer that has no queue. Each Receive asks the broker for one message, and does not
// withdraw that request when its context ends. So a Receive goes on after the caller of begin has stopped waiting, and
// the next caller gets the message.
type zeroQueue struct {
	ended    context.Context
	consumer pulsar.Consumer
	messages chan pulsar.ConsumerMessage
	failed   func(error)
	cancel   context.CancelFunc
	done     chan struct{} // closed when Receive has returned; nil before the first call
}

func newZeroQueue(ended context.Context, consumer pulsar.Consumer, failed func(error)) *zeroQueue {
	return &zeroQueue{ended: ended, consumer: consumer, messages: make(chan pulsar.ConsumerMessage, 1), failed: failed}
}

// begin calls Receive, unless a call is under way or messages has a message.
func (z *zeroQueue) begin() {
	if z.isCalling() || len(z.messages) > 0 {
		return
	}
	ctx, cancel := context.WithCancel(z.ended)
	z.cancel, z.done = cancel, make(chan struct{})
	go z.receive(ctx, cancel, z.done)
}

func (z *zeroQueue) isCalling() bool {
	if z.done == nil {
		return false
	}
	select {
	case <-z.done:
		return false
	default:
		return true
	}
}

func (z *zeroQueue) receive(ctx context.Context, cancel context.CancelFunc, done chan struct{}) {
	defer close(done)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			z.failed(fmt.Errorf("%w (panic: %v)", ErrUndecryptable, p))
		}
	}()
	msg, err := z.consumer.Receive(ctx)
	switch {
	case err == nil:
		z.messages <- pulsar.ConsumerMessage{Consumer: z.consumer, Message: msg}
	case !errors.Is(err, context.Canceled):
		z.failed(err)
	}
}

// took waits until the call whose message was taken has ended. Otherwise the next begin could find that call under way.
func (z *zeroQueue) took() {
	if z != nil {
		<-z.done
	}
}

// recall cancels a call that is under way, and waits for its end.
func (z *zeroQueue) recall() {
	if z.isCalling() {
		z.cancel()
		<-z.done
	}
}
