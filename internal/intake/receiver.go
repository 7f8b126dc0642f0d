package intake

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/apache/pulsar-client-go/pulsar"
)

// ErrUndecryptable says that the consumer without a queue panicked, as it does on a message that it cannot decrypt, of which
// it does not tell the id.
var ErrUndecryptable = errors.New("a message cannot be decrypted: it stays at the broker until the consumer reconnects")

// receiver calls Receive of a consumer that has no queue. Each call asks the broker for one message, and does not take that back when it
// is broken off, so that a call goes on when whoever waited for a message waits no longer: the next one gets it.
type receiver struct {
	consumer pulsar.Consumer
	ended    context.Context
	got      chan receipt       // of the call; nil if the consumer has a queue
	cancel   context.CancelFunc // nil where none was begun since the last receipt was taken

	losses atomic.Uint64 // of the connection
	lost   atomic.Bool   // there is none
	again  atomic.Bool   // there is one, and no call was repeated since
}

type receipt struct {
	msg    pulsar.Message
	err    error
	losses uint64
}

// begin begins a call, unless there is one.
func (r *receiver) begin() {
	if r.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(r.ended)
	r.cancel = cancel
	go func() {
		defer cancel()
		got := receipt{err: errors.New("runtime.Goexit was called")}
		defer func() {
			if p := recover(); p != nil {
				got.err = fmt.Errorf("%w (panic: %v)", ErrUndecryptable, p)
			}
			got.losses = r.losses.Load()
			r.got <- got
		}()
		got.msg, got.err = r.consumer.Receive(ctx)
	}()
}

// take takes a receipt. What came by a connection that is lost comes again, to whichever consumer.
func (r *receiver) take(got receipt) (cm pulsar.ConsumerMessage, event Event, err error) {
	r.cancel = nil
	switch {
	case errors.Is(got.err, context.Canceled) && r.ended.Err() != nil:
		return cm, Woken, ErrClosed
	case got.err != nil || got.losses != r.losses.Load():
		return cm, Woken, got.err
	}
	return pulsar.ConsumerMessage{Consumer: r.consumer, Message: got.msg}, Message, nil
}

// recall breaks a call off, so that something else may be called. What was received is for the next who waits.
func (r *receiver) recall() {
	if r.cancel == nil {
		return
	}
	r.cancel()
	if got := <-r.got; errors.Is(got.err, context.Canceled) {
		r.cancel = nil
	} else {
		r.got <- got
	}
}

// repeats reports whether to ask the broker once more, since nothing came: upstream may forget what it asked for when it connects. It does so
// once for each connection, or else a message would wait here for an application that is at work.
func (r *receiver) repeats(quiet bool) bool { return quiet && r.again.CompareAndSwap(true, false) }
